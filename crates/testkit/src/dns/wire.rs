//! The little of RFC 1035 that questions for addresses need: one question in, records of three kinds out.

use std::net::IpAddr;

const HEADER_BYTES: usize = 12;
const CLASS_IN: [u8; 2] = [0, 1];
/// It is an answer, with authority; recursion was done.
const FLAGS_ANSWER: u8 = 0b1000_0100;
const FLAG_TRUNCATED: u8 = 0b0000_0010;
const FLAG_DESIRED: u8 = 0b0000_0001;
const FLAG_AVAILABLE: u8 = 0b1000_0000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Addresses of IPv4.
    A,
    /// Addresses of IPv6.
    Aaaa,
    /// Something else, by its number.
    Other(u16),
}

impl Kind {
    const fn of(number: u16) -> Self {
        match number {
            1 => Self::A,
            28 => Self::Aaaa,
            other => Self::Other(other),
        }
    }
}

/// A question as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// In small letters, without a dot at the end.
    pub name: String,
    /// What is asked for.
    pub kind: Kind,
    id: [u8; 2],
    /// The asker wants recursion.
    desired: bool,
    /// Name, kind and class, for the answer.
    bytes: Vec<u8>,
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A name has this address.
    Address(String, IpAddr),
    /// A name is another name for a second one.
    Alias(String, String),
}

/// How the question is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Code {
    /// With the records, if there are any.
    #[default]
    NoError,
    /// The server has a fault.
    ServFail,
    /// There is no such name.
    NxDomain,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// How.
    pub code: Code,
    /// There is more than fits: ask by TCP.
    pub truncated: bool,
    /// In order.
    pub records: Vec<Record>,
}

/// Reads a message with one question; none: it is no such thing.
pub fn read_question(message: &[u8]) -> Option<Question> {
    let header = message.get(..HEADER_BYTES)?;
    if header[4..6] != [0, 1] {
        return None;
    }
    let (mut at, mut labels) = (HEADER_BYTES, Vec::new());
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = message.get(at..at + length).filter(|_| length < 64)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let kind = message.get(at..at + 2)?;
    let bytes = message.get(HEADER_BYTES..at + 4)?.to_vec();
    Some(Question {
        name: labels.join("."),
        kind: Kind::of(u16::from_be_bytes([kind[0], kind[1]])),
        id: [header[0], header[1]],
        desired: header[2] & FLAG_DESIRED != 0,
        bytes,
    })
}

/// The answer as a message.
pub fn write_answer(question: &Question, reply: &Reply) -> Vec<u8> {
    let code: u8 = match reply.code {
        Code::NoError => 0,
        Code::ServFail => 2,
        Code::NxDomain => 3,
    };
    let desired = if question.desired { FLAG_DESIRED } else { 0 };
    let truncated = if reply.truncated { FLAG_TRUNCATED } else { 0 };
    let flags = FLAGS_ANSWER | desired | truncated;
    let count = u16::try_from(reply.records.len()).expect("a script writes few records");
    let mut out = question.id.to_vec();
    out.extend([flags, FLAG_AVAILABLE | code, 0, 1]);
    out.extend(count.to_be_bytes());
    out.extend([0; 4]);
    out.extend(&question.bytes);
    for record in &reply.records {
        write_record(&mut out, record);
    }
    out
}

fn write_record(out: &mut Vec<u8>, record: &Record) {
    let (owner, kind, data): (&str, u16, Vec<u8>) = match record {
        Record::Address(owner, IpAddr::V4(v4)) => (owner, 1, v4.octets().to_vec()),
        Record::Address(owner, IpAddr::V6(v6)) => (owner, 28, v6.octets().to_vec()),
        Record::Alias(owner, to) => (owner, 5, name(to)),
    };
    out.extend(name(owner));
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_IN);
    // Good for this one answer.
    out.extend([0; 4]);
    out.extend(u16::try_from(data.len()).expect("an address or a name").to_be_bytes());
    out.extend(data);
}

/// A name in labels.
fn name(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).expect("a label has at most 63 bytes"));
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a resolver asks for `name`.
    fn asked(name: &[u8], kind: u8) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(name);
        message.extend([0, kind, 0, 1]);
        message
    }

    #[test]
    fn a_question_is_read_and_a_piece_of_one_is_not() {
        let message = asked(b"\x03WwW\x07example\0", 28);
        let question = read_question(&message).expect("a question");
        assert_eq!((question.name.as_str(), question.kind), ("www.example", Kind::Aaaa));
        for length in 0..message.len() {
            assert_eq!(read_question(&message[..length]), None, "{length}");
        }
        assert_eq!(read_question(&asked(b"\xc0\x0c\0", 1)), None, "a pointer in a question");
    }

    #[test]
    fn an_answer_has_the_bytes_of_the_standard() {
        let question = read_question(&asked(b"\x01a\0", 1)).expect("a question");
        let records = vec![
            Record::Alias("a".to_owned(), "b.c".to_owned()),
            Record::Address("b.c".to_owned(), IpAddr::from([10, 0, 0, 1])),
        ];
        let reply = Reply { records, ..Reply::default() };
        let wanted: &[u8] = &[
            0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 2, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1, // question
            1, b'a', 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 5, 1, b'b', 1, b'c', 0, // alias
            1, b'b', 1, b'c', 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 0, 0, 1, // address
        ];
        assert_eq!(write_answer(&question, &reply), wanted);
        let refused = Reply { code: Code::NxDomain, truncated: true, records: Vec::new() };
        assert_eq!(write_answer(&question, &refused)[2..8], [0x87, 0x83, 0, 1, 0, 0]);
    }
}
