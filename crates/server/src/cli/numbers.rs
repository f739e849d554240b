//! Numbers on the command line: one that is none is refused with what to write. And counts as they are said.

use std::str::FromStr;

/// An instant, of which nobody needs to guess the unit.
pub(super) fn millis(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "Unix milliseconds are wanted, such as 1769846400000".to_owned())
}

/// Which one of several: from 1 on.
pub(super) fn ordinal(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a number is wanted: 1, 2, ...".to_owned())
}

/// How long a token is good.
pub(super) fn life_days(text: &str) -> Result<i64, String> {
    let days = text.parse().ok().filter(|days| (1..=366).contains(days));
    days.ok_or_else(|| "a number of days from 1 to 366 is wanted".to_owned())
}

/// Which event of an application to go on after: what the API itself takes.
pub(super) fn seq(text: &str) -> Result<i64, String> {
    let seq = text.parse().ok().filter(|seq: &i64| *seq >= 0);
    seq.ok_or_else(|| format!("a whole number from 0 to {} is wanted", i64::MAX))
}

/// Any other number of things, or the number of somebody.
pub(super) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let example = "a whole number is wanted, such as 50";
    text.parse().map_err(|_| {
        let is_number = text.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
        let is_out = is_number && text.len() > usize::from(text.starts_with('-'));
        if is_out { "this number is too small or too large".to_owned() } else { example.to_owned() }
    })
}

/// So many things of a name.
pub(super) fn counted(count: u64, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::super::Cli;

    fn refusal(words: &str) -> String {
        let words = std::iter::once("countersign").chain(words.split(' '));
        Cli::try_parse_from(words).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_word_in_the_place_of_a_number_is_refused_with_what_to_write() {
        for (words, wanted) in [
            (
                "payment-order move 1 --status PAID --transact-time x",
                "Unix milliseconds are wanted, such as 1769846400000",
            ),
            ("merchant create --name n --user-id abc", "a whole number is wanted, such as 50"),
            ("institution create --name n --user-id 1.5", "a whole number is wanted"),
            ("sub-account create i --name n --user-id -", "a whole number is wanted"),
            ("event attempt e x", "a number is wanted: 1, 2, ..."),
            ("event attempt e 0", "a number is wanted: 1, 2, ..."),
            ("event list --limit x", "a whole number is wanted"),
            ("event list --limit -1", "this number is too small or too large"),
            ("event dead-causes --limit 5000000000", "this number is too small or too large"),
            ("token recover --life-days x", "a number of days from 1 to 366 is wanted"),
            ("token recover --life-days 0", "a number of days from 1 to 366 is wanted"),
            ("listen --forward u --after x", "a whole number from 0 to 9223372036854775807 is wanted"),
            ("listen --forward u --after -1", "a whole number from 0 to 9223372036854775807 is wanted"),
            (
                "listen --forward u --after 9223372036854775808",
                "a whole number from 0 to 9223372036854775807 is wanted",
            ),
            ("backup --into f --keep 0", "a number is wanted: 1, 2, ..."),
            ("backup --into f --keep -1", "a number is wanted: 1, 2, ..."),
            ("secret rotate c --overlap-s x", "a whole number is wanted"),
            ("certify u --timeout x", "a number of seconds from 1 to 60 is wanted"),
            ("certify u --timeout 0", "a number of seconds from 1 to 60 is wanted"),
            ("certify u --timeout 61", "a number of seconds from 1 to 60 is wanted"),
            ("institution create --name n --base-r x --base-f 1", "a plain number is wanted, such as 0.3"),
        ] {
            let said = refusal(words);
            assert!(said.contains(wanted) && !said.contains("digit found"), "{words}: {said}");
        }
    }

    #[test]
    fn the_largest_seq_that_the_api_takes_is_taken() {
        let listen = ["countersign", "listen", "--forward", "u", "--after"];
        for seq in ["0", "9223372036854775807"] {
            assert!(Cli::try_parse_from(listen.into_iter().chain([seq])).is_ok(), "{seq}");
        }
    }

    /// Every argument of every command, by its command's words.
    fn arguments(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Arg)>) {
        let words = format!("{words} {}", command.get_name());
        found.extend(command.get_arguments().map(|argument| (words.clone(), argument.clone())));
        for inner in command.get_subcommands() {
            arguments(inner, &words, found);
        }
    }

    #[test]
    fn a_number_below_zero_is_a_number_and_no_flag() {
        let mut found = Vec::new();
        arguments(&Cli::command(), "", &mut found);
        let is_number = |name: &str| ["N", "NUMBER", "AMOUNT", "MS", "S", "SEQ", "DAYS", "CURSOR"].contains(&name);
        let mut count = 0;
        for (words, argument) in found {
            let names = argument.get_value_names().unwrap_or_default();
            if names.iter().any(|name| is_number(name)) {
                assert!(argument.is_allow_negative_numbers_set(), "{words} {argument}");
                count += 1;
            }
        }
        assert!(count > 30, "numbers are found: {count}");
        for words in
            ["merchant list --after -1", "rate set GT_USDT -1", "institution create --name n --base-r -1 --base-f -1"]
        {
            let words = std::iter::once("countersign").chain(words.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "it is for the server to refuse");
        }
    }

    #[test]
    fn only_what_is_over_is_sent_again() {
        let said = refusal("event redeliver-many --client-id c --state held");
        assert!(said.contains("[possible values: delivered, dead]"), "{said}");
        for state in ["delivered", "dead"] {
            let words = ["countersign", "event", "redeliver-many", "--client-id", "c", "--state", state];
            assert!(Cli::try_parse_from(words).is_ok(), "{state}");
        }
    }
}
