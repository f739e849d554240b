//! The address as text. What is said of one that cannot be used names nothing that may be part of a password.

use std::str::FromStr as _;

use tokio_postgres::Config;

use super::fault::words;

/// What is said where nobody can tell the password from the rest.
const ENCODE: &str = "a password with @, /, ?, # or & in it must be percent-encoded: %40 for @, %2F for /, %3F for ?, %23 for #, %26 for &";
/// What the driver says of a parameter that it does not know.
const UNKNOWN: &str = "unknown option";
/// What the driver says of sslmode=verify-full, which others have.
const OTHER_SSLMODE: &str = "`sslmode`";

/// Takes an address apart.
pub(super) fn parsed(url: &str) -> Result<Config, String> {
    let (who, behind) = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('@').unwrap_or(("", rest)),
        None => ("", ""),
    };
    // The driver takes the first @ for the end of the password, whatever is before it, and what is behind for hosts.
    let places = behind.split('?').next().unwrap_or_default();
    if places.contains('@') {
        return Err(ENCODE.to_owned());
    }
    Config::from_str(url).map_err(|error| {
        let said = words(&error);
        if behind.contains('@') || who.contains(['/', '?', '#']) {
            ENCODE.to_owned()
        } else if said.contains(UNKNOWN) && (who.is_empty() || url.contains("password=")) {
            format!("it has a parameter that is not known, and that is not named here, since it may be the end of a password: {ENCODE}")
        } else if said.contains(OTHER_SSLMODE) {
            format!("{said}: sslmode=require checks the server's certificate and name, as verify-full does elsewhere; sslmode=disable encrypts nothing")
        } else {
            said
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_whose_password_cannot_be_told_from_the_rest_is_refused_without_a_word_of_it() {
        for url in [
            "postgres://pwr:p@ss/wd@127.0.0.1:5432/d?sslmode=disable",
            "postgres://pwr:1@2@3/4?5#6@127.0.0.1:5432/d?sslmode=disable",
            "postgres://pwr:1@2?5#6@127.0.0.1:5432/d?sslmode=disable",
            "postgres://h/d?password=1@2?wd=1",
        ] {
            assert_eq!(parsed(url).expect_err(url), ENCODE, "{url}");
        }
        for url in [
            "postgres://h/d?user=u&password=ab&cd=ef",
            "postgres://u@h/d?password=ab&cd=ef",
            "postgres://user:123?cd=4",
        ] {
            let said = parsed(url).expect_err(url);
            assert!(said.starts_with("it has a parameter") && said.ends_with(ENCODE) && !said.contains("cd"), "{said}");
        }
        let encoded = parsed("postgres://u:1%402%2F3%3F4%235@h/d").expect("is one");
        assert_eq!(encoded.get_password(), Some(b"1@2/3?4#5".as_slice()));
        assert!(parsed("postgres://u:p/w?x@h/d").is_ok(), "as it always was");
        assert!(parsed("postgres://u:p@h/d?nonsense=1").expect_err("unknown").contains("`nonsense`"));
        assert!(parsed("postgres://u@h/d?sslmode=verify-full").expect_err("unknown").contains("sslmode=require"));
    }
}
