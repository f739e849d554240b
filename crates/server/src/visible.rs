//! Characters that make a text look like another one, or like none: for names that are set, and for texts that a terminal shows.

use std::fmt::Write as _;

/// Is not seen, and changes how others are: embeddings, overrides and isolates of the direction of writing, separators of lines and paragraphs, and
/// what else is of no width and in no word. Marks of direction (U+200E, U+200F, U+061C) stay: keyboards put them into Hebrew and Arabic text, and
/// they turn nothing around. So do joiners and non-joiners: Persian, the languages of India and many emoji are not written without them.
pub const fn misleads(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Leaves a place empty, or nothing at all: white space, fillers, marks, joiners and selectors of variants.
fn is_unseen(c: char) -> bool {
    c.is_whitespace()
        || misleads(c)
        || matches!(
            c,
            '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200c}'..='\u{200f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{ffa0}'
        )
}

/// Whether there is anything to be seen.
pub fn is_seen(text: &str) -> bool {
    !text.chars().all(is_unseen)
}

/// The first character that misleads. Tags behind a black flag are the flag of England and others; elsewhere they are not seen.
pub fn misleading(text: &str) -> Option<char> {
    let mut is_flag = false;
    text.chars().find(|c| {
        let is_tag = matches!(c, '\u{e0020}'..='\u{e007f}');
        is_flag = *c == '\u{1f3f4}' || is_flag && is_tag;
        misleads(*c) && !(is_flag && is_tag)
    })
}

/// Somebody else's text for a terminal, in one line: what would turn it around, move in it or hide in it stands as a replacement.
pub fn for_terminals(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

/// The same for a text of several lines, which stay.
pub fn lines_for_terminals(text: &str) -> String {
    text.split('\n').map(for_terminals).collect::<Vec<_>>().join("\n")
}

/// JSON for a terminal: such characters are written as escapes, so it says what it said. Between tokens there is none but white space.
pub fn json_for_terminals(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
        out
    })
}

fn is_unsafe(c: char) -> bool {
    c.is_control() || misleads(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_does_not_mislead() {
        for name in [
            "Corner Shop",
            "\u{5d7}\u{5d1}\u{5e8}\u{5d4} \u{5d1}\u{5e2}\"\u{5de}\u{200f}",
            "\u{633}\u{646}\u{6cc}\u{641} \u{200e}12\u{200e}",
            "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}",
            "\u{915}\u{94d}\u{200d}\u{937}",
            "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
            "\u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
            "\u{2764}\u{fe0f}",
        ] {
            assert!(misleading(name).is_none() && is_seen(name), "{name:?}");
        }
    }

    #[test]
    fn what_turns_others_around_or_is_not_seen_misleads() {
        for c in "\u{202a}\u{202e}\u{2066}\u{2069}\u{200b}\u{2028}\u{feff}\u{ad}\u{34f}\u{180e}\u{e0041}".chars() {
            assert_eq!(misleading(&format!("a{c}b")), Some(c), "{c:?}");
        }
        assert_eq!(misleading("\u{1f3f4}a\u{e0041}"), Some('\u{e0041}'), "the flag is over");
    }

    #[test]
    fn json_says_the_same_without_a_character_that_a_terminal_obeys() {
        let said = "a\u{7f}\u{80}\u{9b}2J\u{9f}\u{202a}\u{202e}\u{2066}\u{2069}\u{200b}\u{feff}\u{e0041}\u{e9}\u{200d}";
        let json = serde_json::to_string(&said).expect("a text");
        let shown = json_for_terminals(&json);
        assert!(!shown.chars().any(|c| c.is_control() || misleads(c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), said);
        assert!(shown.contains("\\u009b2J") && shown.contains("\u{e9}\u{200d}"), "{shown:?}");
        assert_eq!(lines_for_terminals("a\u{1b}[2J\r\n\u{202e}b\n"), "a\u{fffd}[2J\u{fffd}\n\u{fffd}b\n");
    }

    #[test]
    fn nothing_but_fillers_and_marks_is_not_seen() {
        for name in [
            "",
            " ",
            "\u{a0}\u{3000}",
            "\u{200c}",
            "\u{200d}\u{200d}",
            "\u{3164}",
            "\u{2800}",
            "\u{200f} \u{fe0f}",
            "\u{17b4}",
        ] {
            assert!(!is_seen(name), "{name:?}");
        }
    }
}
