//! Requests whose end two readers of the same bytes may see at different places, and others that no honest client sends.
//!
//! Each carries a bait: a second request in a place where only a reader that was deceived finds it.

/// What must come of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An answer that refuses, or a closed connection without one.
    Refused,
    /// One answer, whatever it says, or none.
    OnceAtMost,
    /// As many answers as this: what shows that answers are counted.
    Answers(usize),
}

/// Bytes for one connection.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What is odd about it.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What must come of them.
    pub wanted: Wanted,
}

/// Where shapes are sent to.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// A path that answers GET with success.
    pub get: &'static str,
    /// A path that takes a POST with a body.
    pub post: &'static str,
}

/// The path of the bait of shape number `n`. Nobody may be asked for it.
pub fn bait_path(n: usize) -> String {
    format!("/v1/bait-{n}-")
}

/// What the log says of a bait that was taken.
pub const BAIT: &str = "/v1/bait-";

fn bait(n: usize) -> String {
    format!("GET {} HTTP/1.1\r\nHost: bait\r\n\r\n", bait_path(n))
}

/// A list under construction.
struct List {
    targets: Targets,
    shapes: Vec<Shape>,
}

impl List {
    fn put(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>, wanted: Wanted) {
        self.shapes.push(Shape { name: name.into(), bytes: bytes.into(), wanted });
    }

    fn bait(&self) -> String {
        bait(self.shapes.len())
    }

    /// A POST with these lines in its head and this after it.
    fn post(&mut self, name: impl Into<String>, lines: &str, after: &str, wanted: Wanted) {
        let path = self.targets.post;
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{lines}\r\n\r\n");
        self.put(name, head + after, wanted);
    }

    /// A GET with these lines in its head.
    fn get(&mut self, name: impl Into<String>, lines: &str, wanted: Wanted) {
        let path = self.targets.get;
        self.put(name, format!("GET {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n"), wanted);
    }
}

/// All of them. The position in the list is the number of the bait.
pub fn shapes(targets: Targets) -> Vec<Shape> {
    let mut list = List { targets, shapes: Vec::new() };
    controls(&mut list);
    two_lengths(&mut list);
    lengths(&mut list);
    codings(&mut list);
    chunks(&mut list);
    heads(&mut list);
    lines(&mut list);
    unread_bodies(&mut list);
    versions(&mut list);
    list.shapes
}

/// What must be answered: else a server that answers nothing would pass.
fn controls(list: &mut List) {
    let get = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", list.targets.get);
    list.put("one request", get.clone(), Wanted::Answers(1));
    list.put("two requests in one piece", get.repeat(2), Wanted::Answers(2));
    list.post("a body of a known length", "Content-Length: 2", "{}", Wanted::Answers(1));
    list.post("a body in chunks", "Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", Wanted::Answers(1));
}

fn two_lengths(list: &mut List) {
    use Wanted::{OnceAtMost, Refused};
    let bait = list.bait();
    let lines = format!("Content-Length: {}\r\nTransfer-Encoding: chunked", bait.len() + 5);
    list.post("a length and chunks", &lines, &format!("0\r\n\r\n{bait}"), OnceAtMost);
    let bait = list.bait();
    let lines = format!("Transfer-Encoding: chunked\r\nContent-Length: {}", bait.len() + 5);
    list.post("chunks and a length", &lines, &format!("0\r\n\r\n{bait}"), OnceAtMost);
    let bait = list.bait();
    let chunk = format!("{:x}\r\n{bait}\r\n0\r\n\r\n", bait.len());
    list.post("a short length and chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked", &chunk, OnceAtMost);
    for (name, lengths) in [("second", [0, 1]), ("first", [1, 0])] {
        let bait = list.bait();
        let [one, two] = lengths.map(|whole| 2 + whole * bait.len());
        let lines = format!("Content-Length: {one}\r\nContent-Length: {two}");
        list.post(format!("two lengths, the {name} holds the bait"), &lines, &format!("{{}}{bait}"), Refused);
        let bait = list.bait();
        let lines = format!("Content-Length: {one}, {two}");
        list.post(format!("a list of lengths, the {name} holds the bait"), &lines, &format!("{{}}{bait}"), Refused);
    }
    list.post("the same length twice", "Content-Length: 2\r\nContent-Length: 2", "{}", OnceAtMost);
    list.post("the same length as a list", "Content-Length: 2, 2", "{}", OnceAtMost);
}

fn lengths(list: &mut List) {
    let odd = [
        "+2",
        "-2",
        "2.0",
        "0x2",
        "2 2",
        "2_",
        "\u{b2}",
        "18446744073709551616",
        "18446744073709551618",
        "99999999999999999999999999",
        "two",
        "",
        "2\u{b}",
        "2;",
    ];
    for value in odd {
        let bait = list.bait();
        list.post(
            format!("the length {value:?}"),
            &format!("Content-Length: {value}"),
            &format!("{{}}{bait}"),
            Wanted::Refused,
        );
    }
    // Zeros in front mean the same to everybody who reads decimal; who reads octal sees another end.
    let bait = list.bait();
    list.post("a length with zeros in front", &format!("Content-Length: 0{}", bait.len()), &bait, Wanted::OnceAtMost);
    let bait = list.bait();
    list.post("a length beyond the limit of bodies", "Content-Length: 70000", &bait, Wanted::Refused);
}

fn codings(list: &mut List) {
    let odd = [
        "xchunked",
        "chunke",
        "identity",
        "gzip",
        "chunked, identity",
        "gzip, chunked",
        "identity, chunked",
        "chunked, chunked",
        "chunked;q=1",
        "\"chunked\"",
        "cow, chunked",
        "chunked, cow",
        ",chunked",
        "chunked,",
        "\u{b}chunked",
        "chunked\u{0}",
        "",
    ];
    for value in odd {
        let bait = list.bait();
        let lines = format!("Transfer-Encoding: {value}\r\nContent-Length: {}", bait.len() + 5);
        list.post(format!("the coding {value:?}"), &lines, &format!("0\r\n\r\n{bait}"), Wanted::Refused);
        let bait = list.bait();
        let lines = format!("Transfer-Encoding: {value}");
        list.post(format!("the coding {value:?} alone"), &lines, &format!("0\r\n\r\n{bait}"), Wanted::Refused);
    }
    for (one, two) in [("chunked", "identity"), ("identity", "chunked"), ("chunked", "chunked"), ("chunked", "cow")] {
        let bait = list.bait();
        let lines = format!("Transfer-Encoding: {one}\r\nTransfer-Encoding: {two}");
        list.post(format!("the codings {one} and {two}"), &lines, &format!("0\r\n\r\n{bait}"), Wanted::Refused);
    }
    for (name, line) in [
        ("space before the colon of a coding", "Transfer-Encoding : chunked"),
        ("a folded coding", "Transfer-Encoding:\r\n chunked"),
        ("a folded line that ends in a coding", "X-Nothing: 1\r\n Transfer-Encoding: chunked"),
        ("a tab before a coding", "\tTransfer-Encoding: chunked"),
        ("a coding after a bare carriage return", "X-Nothing: 1\rTransfer-Encoding: chunked"),
        ("a coding after a byte of nothing", "X-Nothing: 1\u{0}\r\nTransfer-Encoding: chunked"),
        ("space before the colon of a length", "Content-Length : 2"),
    ] {
        let bait = list.bait();
        let lines = format!("{line}\r\nContent-Length: {}", bait.len() + 5);
        list.post(name, &lines, &format!("0\r\n\r\n{bait}"), Wanted::Refused);
    }
    let bait = list.bait();
    let lines = format!("Transfer_Encoding: chunked\r\nContent-Length: {}", bait.len() + 5);
    list.post("a coding with an underscore", &lines, &format!("0\r\n\r\n{bait}"), Wanted::OnceAtMost);
    let bait = list.bait();
    let lines = format!("X-Nothing: 1\nTransfer-Encoding: chunked\r\nContent-Length: {}", bait.len() + 5);
    list.post("a coding after a bare line feed", &lines, &format!("0\r\n\r\n{bait}"), Wanted::OnceAtMost);
}

fn chunks(list: &mut List) {
    let chunked = "Transfer-Encoding: chunked";
    let broken = [
        ("a size with a sign", "+2\r\n{}\r\n0\r\n\r\n"),
        ("a negative size", "-2\r\n{}\r\n0\r\n\r\n"),
        ("a size with a prefix", "0x2\r\n{}\r\n0\r\n\r\n"),
        ("a size of 65 bits", "10000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("a size of very many digits", "fffffffffffffffffffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("no size", "\r\n{}\r\n0\r\n\r\n"),
        ("data longer than its size", "2\r\n{}{}\r\n0\r\n\r\n"),
        ("no line after the data", "2\r\n{}0\r\n\r\n"),
        ("a bare carriage return after a size", "2\r{}\r\n0\r\n\r\n"),
        ("a carriage return in an extension", "2;a\rb\r\n{}\r\n0\r\n\r\n"),
        ("a line feed in an extension", "2;a\nb\r\n{}\r\n0\r\n\r\n"),
        ("a size that is no number", "two\r\n{}\r\n0\r\n\r\n"),
    ];
    for (name, body) in broken {
        let bait = list.bait();
        list.post(format!("chunks: {name}"), chunked, &format!("{body}{bait}"), Wanted::Refused);
    }
    list.post("chunks: a bare line feed after a size", chunked, "2\n{}\r\n0\r\n\r\n", Wanted::OnceAtMost);
    let extension = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(64 * 1024));
    list.post("chunks: an extension of 64 KiB", chunked, &extension, Wanted::OnceAtMost);
    let trailers = format!("2\r\n{{}}\r\n0\r\n{}\r\n", "X-Trailer: 1\r\n".repeat(10_000));
    list.post("chunks: 10,000 trailers", chunked, &trailers, Wanted::OnceAtMost);
    let trailers = "2\r\n{}\r\n0\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\nX-Service-Nonce: a\r\n\r\n";
    list.post("chunks: trailers that look like a head", chunked, trailers, Wanted::OnceAtMost);
    list.post("chunks: 20,000 of one byte", chunked, &("1\r\n \r\n".repeat(20_000) + "0\r\n\r\n"), Wanted::OnceAtMost);
    list.post(
        "chunks: more than the limit of bodies",
        chunked,
        &format!("20000\r\n{}", " ".repeat(0x20000)),
        Wanted::Refused,
    );
}

fn heads(list: &mut List) {
    use Wanted::{OnceAtMost, Refused};
    for (name, line) in [
        ("a byte of nothing in a value", "X-Nothing: a\u{0}b"),
        ("a byte of nothing in a name", "X-No\u{0}thing: a"),
        ("a bare carriage return in a value", "X-Nothing: a\rb"),
        ("a space before a colon", "X-Nothing : a"),
        ("a space in a name", "X Nothing: a"),
        ("no name", ": a"),
        ("a folded value", "X-Nothing: a\r\n b"),
        ("a line that begins with a space", " X-Nothing: a"),
        ("two hosts", "Host: y"),
        ("a value that is no text", "X-Nothing: \u{1}"),
    ] {
        list.get(name, line, Refused);
    }
    list.get("101 headers", "X-Nothing: a\r\n".repeat(101).trim_end(), Refused);
    list.get("a head of 33 KiB", &format!("X-Nothing: {}", "a".repeat(33 * 1024)), Refused);
    list.get("a head of 1 MiB", &format!("X-Nothing: {}", "a".repeat(1024 * 1024)), Refused);
    list.get("10,000 headers", "X-Nothing: a\r\n".repeat(10_000).trim_end(), Refused);
    list.get("no colon", "X-Nothing", OnceAtMost);
    list.get("bytes beyond ASCII in a value", "X-Nothing: \u{e9}", OnceAtMost);
    list.get("a length without a body on GET", "Content-Length: 0", Wanted::Answers(1));
    list.get(
        "a wish to speak HTTP/2",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        Wanted::Answers(1),
    );
    let path = list.targets.get;
    list.put("bare line feeds alone", format!("GET {path} HTTP/1.1\nHost: x\n\n"), OnceAtMost);
    list.put("no host", format!("GET {path} HTTP/1.1\r\n\r\n"), OnceAtMost);
}

fn lines(list: &mut List) {
    use Wanted::{OnceAtMost, Refused};
    let path = list.targets.get;
    for (name, line) in [
        ("no version", format!("GET {path}")),
        ("a version of three parts", format!("GET {path} HTTP/1.1.1")),
        ("a version that is none", format!("GET {path} HTTP/9.9")),
        ("a version in small letters", format!("GET {path} http/1.1")),
        ("a space in the path", format!("GET {path} {path} HTTP/1.1")),
        ("a byte of nothing in the path", format!("GET {path}\u{0} HTTP/1.1")),
        ("a tab between method and path", format!("GET\t{path} HTTP/1.1")),
        ("a method with a bracket", format!("G(T {path} HTTP/1.1")),
        ("a method of 40 KiB", format!("{} {path} HTTP/1.1", "G".repeat(40 * 1024))),
        ("a path of 9 KiB", format!("GET /{} HTTP/1.1", "a".repeat(9 * 1024))),
        ("a path of 1 MiB", format!("GET /{} HTTP/1.1", "a".repeat(1024 * 1024))),
        ("a path that climbs", format!("GET /..{path} HTTP/1.1")),
        ("a path with two slashes", format!("GET /{path} HTTP/1.1")),
        ("the method CONNECT", "CONNECT 127.0.0.1:1 HTTP/1.1".to_owned()),
        ("the method TRACE", format!("TRACE {path} HTTP/1.1")),
        ("the whole server", "OPTIONS * HTTP/1.1".to_owned()),
        ("an answer in place of a request", "HTTP/1.1 200 OK".to_owned()),
    ] {
        list.put(name, format!("{line}\r\nHost: x\r\n\r\n"), Refused);
    }
    list.put(
        "an address in place of a path",
        format!("GET http://elsewhere{path} HTTP/1.1\r\nHost: x\r\n\r\n"),
        OnceAtMost,
    );
    list.put("lines without anything first", format!("\r\n\r\nGET {path} HTTP/1.1\r\nHost: x\r\n\r\n"), OnceAtMost);
    list.put("nothing but bytes of nothing", vec![0; 1000], Refused);
    list.put("a greeting of TLS", vec![22, 3, 1, 0, 5, 1, 0, 0, 1, 0], Refused);
}

/// Bodies that nobody reads, since the request is refused by its head: what is in them is no request.
fn unread_bodies(list: &mut List) {
    for (name, path) in [("a path that is not there", "/nowhere"), ("a method that is not taken", list.targets.get)] {
        let bait = list.bait();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", bait.len());
        list.put(format!("the body of {name}"), head + &bait, Wanted::Refused);
        let bait = list.bait();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        list.put(
            format!("the chunks of {name}"),
            format!("{head}{:x}\r\n{bait}\r\n0\r\n\r\n", bait.len()),
            Wanted::Refused,
        );
    }
    let bait = list.bait();
    list.post(
        "a body that waits to be wanted, sent at once",
        &format!("Expect: 100-continue\r\nContent-Length: {}", bait.len()),
        &bait,
        Wanted::OnceAtMost,
    );
    let bait = list.bait();
    let path = list.targets.get;
    list.put(
        "a body on GET",
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{bait}", bait.len()),
        Wanted::OnceAtMost,
    );
    let bait = list.bait();
    list.put(
        "what follows a head that is no head",
        format!("GET {path} HTTP/1.1\r\nX Y: 1\r\n\r\n{bait}"),
        Wanted::Refused,
    );
    let bait = list.bait();
    list.put(
        "what follows the last request",
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n{bait}"),
        Wanted::Answers(1),
    );
}

fn versions(list: &mut List) {
    let (get, post) = (list.targets.get, list.targets.post);
    list.put("HTTP/0.9", format!("GET {get}\r\n"), Wanted::Refused);
    let bait = list.bait();
    list.put("HTTP/1.0", format!("GET {get} HTTP/1.0\r\n\r\n{bait}"), Wanted::Answers(1));
    let bait = list.bait();
    let head = format!("POST {post} HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n");
    list.put("HTTP/1.0 in chunks", format!("{head}\r\n0\r\n\r\n{bait}"), Wanted::Refused);
    let bait = list.bait();
    let held = format!("{head}Connection: keep-alive\r\nContent-Length: {}\r\n\r\n0\r\n\r\n{bait}", bait.len() + 5);
    list.put("HTTP/1.0 in chunks with a length, held open", held, Wanted::Refused);
    list.put(
        "the greeting of HTTP/2 and nothing of it",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\n\r\n".as_bytes(),
        Wanted::Refused,
    );
}
