//! Callback URLs that nobody means well with: addresses of every forbidden range in every spelling, with ports, schemes and user names, and
//! names that stand for such addresses.

use std::collections::HashSet;
use std::net::IpAddr;

use super::special::{carriers, v4_samples, v6_samples};
use super::spellings;
use crate::dice::Dice;

/// Names of [`names`] end so.
const ZONE: &str = "forbidden.example";

const SCHEMES: [&str; 6] = ["https", "http", "HTTPS", "gopher", "file", "ftp"];
/// The first two are allowed in the run.
const PORTS: [&str; 10] = ["", ":443", ":8443", ":80", ":22", ":0", ":65536", ":", ":+443", ":0443"];
const USERS: [&str; 6] = ["", "a@", "a:b@", ":@", "merchant.example@", "merchant.example:443@"];
const PATHS: [&str; 5] = ["", "/", "/hook?to=https://merchant.example/", "/#@merchant.example", "\\@merchant.example/"];

/// Names of the run's zone, each with the one forbidden address that it stands for.
pub fn names() -> Vec<(String, IpAddr)> {
    let native = v4_samples().into_iter().map(IpAddr::V4).chain(v6_samples().into_iter().map(IpAddr::V6));
    let inside = ["10.0.0.1", "127.0.0.1", "169.254.169.254", "8.8.8.8"]
        .into_iter()
        .flat_map(|text| carriers(text.parse().expect("an address")))
        .map(IpAddr::V6);
    native.chain(inside).enumerate().map(|(n, address)| (format!("n{n}.{ZONE}"), address)).collect()
}

/// Ways to write a name.
fn spellings_name(name: &str) -> [String; 4] {
    [name.to_owned(), name.to_uppercase(), format!("{name}."), name.replace(".example", ".EXAMPLE.")]
}

/// So many of them, no two alike. Every host has a plain https URL before other schemes, ports and user names are laid around it.
pub fn hostile(wanted: usize) -> Vec<String> {
    let hosts = hosts();
    let mut dice = Dice::new(5);
    let mut seen = HashSet::new();
    let mut urls = Vec::new();
    let plain = hosts.iter().zip(PORTS.iter().cycle()).map(|(host, port)| format!("https://{host}{port}/"));
    for url in plain.take(wanted) {
        if seen.insert(url.clone()) {
            urls.push(url);
        }
    }
    while urls.len() < wanted {
        let host = &hosts[dice.below(hosts.len())];
        let (scheme, user) = (SCHEMES[dice.below(SCHEMES.len())], USERS[dice.below(USERS.len())]);
        let (port, path) = (PORTS[dice.below(PORTS.len())], PATHS[dice.below(PATHS.len())]);
        let url = format!("{scheme}://{user}{host}{port}{path}");
        if seen.insert(url.clone()) {
            urls.push(url);
        }
    }
    urls
}

/// Every spelling of every address, shuffled, and after each third one a name: so a small run has some of each.
fn hosts() -> Vec<String> {
    let mut literals: Vec<String> = Vec::new();
    for v4 in v4_samples() {
        literals.extend(spellings::of_v4(v4));
        literals.extend(carriers(v4).into_iter().map(|v6| format!("[{v6}]")));
    }
    literals.extend(v6_samples().into_iter().flat_map(spellings::of_v6));
    let mut dice = Dice::new(5);
    for last in (1..literals.len()).rev() {
        literals.swap(last, dice.below(last + 1));
    }
    let machine = ["localhost", "LOCALHOST", "localhost.", "ip6-localhost"].map(str::to_owned);
    let mut named = machine.into_iter().chain(names().into_iter().flat_map(|(name, _)| spellings_name(&name)));
    let mut hosts = Vec::new();
    for (at, literal) in literals.into_iter().enumerate() {
        hosts.push(literal);
        hosts.extend(if at % 3 == 0 { named.next() } else { None });
    }
    hosts.extend(named);
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_many_thousands_of_different_ones() {
        let urls = hostile(20_000);
        assert_eq!(urls.len(), 20_000);
        let distinct: HashSet<_> = urls.iter().collect();
        assert_eq!(distinct.len(), urls.len());
    }

    #[test]
    fn a_small_number_has_names_literals_schemes_ports_and_users_among_them() {
        let urls = hostile(6_000);
        for part in ["localhost", ZONE, "0x", "[::ffff:", "%2e", "http://", "a:b@", ":8443", ":0/", "\u{ff11}"] {
            assert!(urls.iter().any(|url| url.contains(part)), "{part}");
        }
        assert!(hostile(300).iter().any(|url| url.contains(ZONE)));
    }
}
