use super::*;

/// What becomes of an address: in production, and where private callbacks are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    PrivateOnly,
    Shut,
}
use Fate::{Open, PrivateOnly, Shut};

fn strict() -> Egress {
    Egress { allow_private: false, allowed_ports: vec![8443] }
}

fn private() -> Egress {
    Egress { allow_private: true, allowed_ports: Vec::new() }
}

fn fate(address: &str) -> Fate {
    let address: IpAddr = address.parse().expect("the table has addresses");
    match (strict().vet(address).is_ok(), private().vet(address).is_ok()) {
        (true, true) => Open,
        (false, true) => PrivateOnly,
        (false, false) => Shut,
        (true, false) => panic!("{address} is open in production and shut in development"),
    }
}

/// One row per range: the neighbour below, first, last, the neighbour above.
type Row = (&'static str, Fate, &'static str, &'static str, Fate, &'static str, Fate);

fn check(rows: &[Row]) {
    for (below, fate_below, first, last, inside, above, fate_above) in rows {
        for (address, wanted) in [(below, fate_below), (first, inside), (last, inside), (above, fate_above)] {
            if !address.is_empty() {
                assert_eq!(fate(address), *wanted, "{address}");
            }
        }
    }
}

#[test]
fn every_special_range_of_ipv4_is_shut_from_its_first_to_its_last_address() {
    check(&[
        ("", Open, "0.0.0.0", "0.255.255.255", Shut, "1.0.0.0", Open),
        ("9.255.255.255", Open, "10.0.0.0", "10.255.255.255", PrivateOnly, "11.0.0.0", Open),
        ("100.63.255.255", Open, "100.64.0.0", "100.127.255.255", PrivateOnly, "100.128.0.0", Open),
        ("100.100.100.199", PrivateOnly, "100.100.100.200", "100.100.100.200", Shut, "100.100.100.201", PrivateOnly),
        ("126.255.255.255", Open, "127.0.0.0", "127.255.255.255", PrivateOnly, "128.0.0.0", Open),
        ("168.63.129.15", Open, "168.63.129.16", "168.63.129.16", Shut, "168.63.129.17", Open),
        ("169.253.255.255", Open, "169.254.0.0", "169.254.255.255", Shut, "169.255.0.0", Open),
        ("169.254.169.253", Shut, "169.254.169.254", "169.254.170.2", Shut, "169.254.170.3", Shut),
        ("172.15.255.255", Open, "172.16.0.0", "172.31.255.255", PrivateOnly, "172.32.0.0", Open),
        ("191.255.255.255", Open, "192.0.0.0", "192.0.0.255", Shut, "192.0.1.0", Open),
        ("192.0.1.255", Open, "192.0.2.0", "192.0.2.255", Shut, "192.0.3.0", Open),
        ("192.31.195.255", Open, "192.31.196.0", "192.31.196.255", Shut, "192.31.197.0", Open),
        ("192.52.192.255", Open, "192.52.193.0", "192.52.193.255", Shut, "192.52.194.0", Open),
        ("192.88.98.255", Open, "192.88.99.0", "192.88.99.255", Shut, "192.88.100.0", Open),
        ("192.167.255.255", Open, "192.168.0.0", "192.168.255.255", PrivateOnly, "192.169.0.0", Open),
        ("192.175.47.255", Open, "192.175.48.0", "192.175.48.255", Shut, "192.175.49.0", Open),
        ("198.17.255.255", Open, "198.18.0.0", "198.19.255.255", Shut, "198.20.0.0", Open),
        ("198.51.99.255", Open, "198.51.100.0", "198.51.100.255", Shut, "198.51.101.0", Open),
        ("203.0.112.255", Open, "203.0.113.0", "203.0.113.255", Shut, "203.0.114.0", Open),
        ("223.255.255.255", Open, "224.0.0.0", "239.255.255.255", Shut, "240.0.0.0", Shut),
        ("239.255.255.255", Shut, "240.0.0.0", "255.255.255.255", Shut, "", Open),
        ("8.8.8.7", Open, "8.8.8.8", "8.8.8.8", Open, "8.8.8.9", Open),
    ]);
}

#[test]
fn every_special_range_of_ipv6_is_shut_from_its_first_to_its_last_address() {
    const LAST: &str = "ffff:ffff:ffff:ffff:ffff:ffff";
    let to = |net: &str| -> &'static str { Box::leak(format!("{net}:{LAST}").into_boxed_str()) };
    check(&[
        ("", Open, "::", "::", Shut, "::1", PrivateOnly),
        ("::", Shut, "::1", "::1", PrivateOnly, "::2", Shut),
        ("::1", PrivateOnly, "::2", "::ffff:ffff", Shut, "::1:0:0", Shut),
        ("::fffe:ffff:ffff", Shut, "::ffff:0:0", "::ffff:255.255.255.255", Shut, "::1:0:0:0", Shut),
        ("::ffff:8.8.8.7", Shut, "::ffff:8.8.8.8", "::ffff:127.0.0.1", Shut, "::ffff:169.254.169.254", Shut),
        ("::fffe:ffff:ffff:ffff", Shut, "::ffff:0:0:0", "::ffff:0:ffff:ffff", Shut, "::ffff:1:0:0", Shut),
        ("64:ff9a:ffff::", Shut, "64:ff9b::", "64:ff9b::ffff:ffff", Shut, "64:ff9b::1:0:0", Shut),
        ("64:ff9b:0:ffff::", Shut, "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Shut, "64:ff9b:2::", Shut),
        ("ff::", Shut, "100::", "100::ffff:ffff:ffff:ffff", Shut, "100:0:0:1::", Shut),
        ("100::ffff:ffff:ffff:ffff", Shut, "100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", Shut, "100:0:0:2::", Shut),
        ("1fff:ffff::", Shut, "2000::", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Open, "2001::", Shut),
        ("2000:ffff::", Open, "2001::", to("2001:0"), Shut, "2001:1::", Shut),
        (
            "2a00:1450::5efd:a00:1",
            Open,
            "2a00:1450::5efe:0:0",
            "2a00:1450::5efe:ffff:ffff",
            Shut,
            "2a00:1450::5eff:0:0",
            Open,
        ),
        (
            "2a00:1450::1ff:5efe:0:0",
            Open,
            "2a00:1450::200:5efe:0:0",
            "2a00:1450::200:5efe:a00:1",
            Shut,
            "2a00:1450::201:5efe:0:0",
            Open,
        ),
        ("2001:1::", Shut, "2001:2::", to("2001:1ff"), Shut, "2001:200::", Open),
        (to("2001:db7"), Open, "2001:db8::", to("2001:db8"), Shut, "2001:db9::", Open),
        (to("2001:ffff"), Open, "2002::", to("2002:ffff"), Shut, "2003::", Open),
        (
            "2620:4f:7fff:ffff::",
            Open,
            "2620:4f:8000::",
            "2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
            Shut,
            "2620:4f:8001::",
            Open,
        ),
        (to("3ffd:ffff"), Open, "3ffe::", to("3ffe:ffff"), Shut, "3fff::", Shut),
        (to("3ffe:ffff"), Shut, "3fff::", to("3fff:fff"), Shut, "3fff:1000::", Open),
        (to("3fff:fffe"), Open, "3fff:ffff::", to("3fff:ffff"), Open, "4000::", Shut),
        ("5eff::", Shut, "5f00::", to("5f00:ffff"), Shut, "5f01::", Shut),
        (to("fbff:ffff"), Shut, "fc00::", to("fcff:ffff"), PrivateOnly, "fd00::", PrivateOnly),
        (to("fd00:ec1"), PrivateOnly, "fd00:ec2::", to("fd00:ec2"), Shut, "fd00:ec3::", PrivateOnly),
        (to("fd00:41"), PrivateOnly, "fd00:42::", to("fd00:42"), Shut, "fd00:43::", PrivateOnly),
        (to("fd00:c0"), PrivateOnly, "fd00:c1::", to("fd00:c1"), Shut, "fd00:c2::", PrivateOnly),
        (to("fd00:ff"), PrivateOnly, "fd00:100::", to("fd00:100"), Shut, "fd00:101::", PrivateOnly),
        (to("fd00:a9fd"), PrivateOnly, "fd00:a9fe::", to("fd00:a9fe"), Shut, "fd00:a9ff::", PrivateOnly),
        (to("fd20:cd"), PrivateOnly, "fd20:ce::", to("fd20:ce"), Shut, "fd20:cf::", PrivateOnly),
        (to("fdff:fffe"), PrivateOnly, "fdff:ffff::", to("fdff:ffff"), PrivateOnly, "fe00::", Shut),
        ("fe7f:ffff::", Shut, "fe80::", to("febf:ffff"), Shut, "fec0::", Shut),
        ("febf:ffff::", Shut, "fec0::", to("feff:ffff"), Shut, "ff00::", Shut),
        ("feff:ffff::", Shut, "ff00::", to("ffff:ffff"), Shut, "", Open),
        ("2606:4700:4700::1110", Open, "2606:4700:4700::1111", "2606:4700:4700::1111", Open, "2a00:1450::1", Open),
    ]);
}

#[test]
fn the_form_of_a_url_decides_before_any_lookup() {
    use EgressRefused::{
        Blank, Control, Host, HostLetters, Malformed, Port, PortForm, Range, Scheme, TooLong, UserInfo,
    };
    let accepted = |egress: &Egress, url: &str| egress.target(url).map(|t| (t.host().to_string(), t.port()));
    for (url, wanted) in [
        ("https://merchant.example/callbacks?x=1", Ok(("merchant.example".to_owned(), 443))),
        ("https://merchant.example:8443/", Ok(("merchant.example".to_owned(), 8443))),
        ("HTTPS://merchant.example", Ok(("merchant.example".to_owned(), 443))),
        ("https://8.8.8.8/", Ok(("8.8.8.8".to_owned(), 443))),
        ("https://[2606:4700:4700::1111]/", Ok(("2606:4700:4700::1111".to_owned(), 443))),
        ("https://merchant.example./", Ok(("merchant.example.".to_owned(), 443))),
        ("https://1.merchant-2_3.example/", Ok(("1.merchant-2_3.example".to_owned(), 443))),
        ("https://0x.example/", Ok(("0x.example".to_owned(), 443))),
        ("http://merchant.example/", Err(Scheme)),
        ("ftp://merchant.example/", Err(Scheme)),
        ("https://merchant.example:8444/", Err(Port(8444))),
        ("https://merchant.example:0/", Err(PortForm)),
        ("https://merchant.example:/", Err(PortForm)),
        ("https://merchant.example:99999/", Err(PortForm)),
        ("https://user@merchant.example/", Err(UserInfo)),
        ("https://user:secret@merchant.example/", Err(UserInfo)),
        ("https://merchant.example@127.0.0.1/", Err(UserInfo)),
        ("https://127.0.0.1/", Err(Range("loopback"))),
        ("https://[::1]/", Err(Range("loopback"))),
        ("https://[::ffff:8.8.8.8]/", Err(Range("IPv4-mapped"))),
        ("https://169.254.169.254/latest", Err(Range("link-local and metadata"))),
        // A resolver makes addresses of these.
        ("https://2130706433/", Err(Host)),
        ("https://0x7f.1/", Err(Host)),
        ("https://127.1/", Err(Host)),
        ("https://0177.0.0.1/", Err(Host)),
        ("https://127.0.0.1./", Err(Host)),
        ("https://merchant.0x7f000001/", Err(Host)),
        ("https://[8.8.8.8]/", Err(Host)),
        ("https://[fe80::1%25eth0]/", Err(Host)),
        ("https://merchant..example/", Err(Host)),
        ("https://127.0.0.1%2f.example/", Err(Malformed)),
        ("https:///path", Err(Malformed)),
        ("/path", Err(Malformed)),
        ("merchant.example", Err(Malformed)),
        ("https://merchant example/", Err(Blank("holds"))),
        (" https://merchant.example/", Err(Blank("begins with"))),
        ("https://merchant.example/ ", Err(Blank("ends with"))),
        ("https://merchant.example/a b", Err(Blank("holds"))),
        ("https://merchant.example/\n", Err(Control(10))),
        ("https://m\u{fc}nchen.example/cb", Err(HostLetters)),
        ("https://merchant.example?q=1", Ok(("merchant.example".to_owned(), 443))),
        ("", Err(Malformed)),
    ] {
        assert_eq!(accepted(&strict(), url), wanted, "{url}");
    }
    let long = format!("https://merchant.example/{}", "a".repeat(URL_BYTES_MAX));
    assert_eq!(accepted(&strict(), &long), Err(TooLong));
}

#[test]
fn private_callbacks_open_http_and_any_port_but_no_metadata() {
    for url in ["http://127.0.0.1:40000/x", "https://[::1]:1/", "http://10.1.2.3/", "http://localhost:3000/"] {
        assert!(private().target(url).is_ok(), "{url}");
    }
    for url in ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://100.100.100.200/", "http://0.0.0.0/"] {
        assert!(matches!(private().target(url), Err(EgressRefused::Range(_))), "{url}");
    }
    assert_eq!(private().target("http://u@127.0.0.1/"), Err(EgressRefused::UserInfo));
    assert_eq!(private().target("ftp://127.0.0.1/"), Err(EgressRefused::EitherScheme));
}

#[test]
fn path_query_and_host_are_sent_as_written() {
    let target = private().target("http://127.0.0.1:8080/a/b?c=d#e").expect("allowed");
    assert_eq!(target.path_and_query(), "/a/b?c=d");
    assert_eq!(target.authority(), "127.0.0.1:8080");
    assert_eq!(private().target("http://[::1]:8080").expect("allowed").authority(), "[::1]:8080");
    assert_eq!(private().target("http://[::1]:8080").expect("allowed").path_and_query(), "/");
}

#[test]
fn a_query_without_a_path_is_asked_of_the_root() {
    let target = strict().target("https://merchant.example?q=1&r=/").expect("allowed");
    assert_eq!(
        (target.path_and_query().to_string(), target.authority()),
        ("/?q=1&r=/".to_owned(), &"merchant.example".parse::<HeaderValue>().expect("a value"))
    );
}

#[test]
fn a_url_that_is_to_be_kept_has_no_character_that_no_url_has_and_one_that_was_kept_goes_out_as_before() {
    for (path, wanted) in [
        ("/\u{e4}", Some('\u{e4}')),
        ("/a|b", Some('|')),
        ("/a\"b", Some('"')),
        ("/a\\b", Some('\\')),
        ("/{x}", Some('{')),
        ("?q=\u{e4}", Some('\u{e4}')),
        ("/%C3%A4?a[]=1&b=~'()*+,;:@!$&-._", None),
        ("", None),
    ] {
        let url = format!("https://merchant.example{path}");
        let refused = strict().accept(&url).err();
        assert_eq!(refused, wanted.map(EgressRefused::Character), "{url}");
        assert!(strict().target(&url).is_ok(), "{url}");
    }
    assert_eq!(strict().accept("http://merchant.example/|"), Err(EgressRefused::Scheme), "the form comes first");
    for path in ["/%", "/%z0", "/%4", "/%4g", "/%C3%A4%?", "?q=%"] {
        assert_eq!(strict().accept(&format!("https://merchant.example{path}")), Err(EgressRefused::Percent), "{path}");
    }
    for path in ["#", "/#f", "/a?b=c#d", "?q=1#", "/#|"] {
        let url = format!("https://merchant.example{path}");
        assert_eq!(
            (strict().accept(&url), strict().target(&url).is_ok()),
            (Err(EgressRefused::Fragment), true),
            "{url}"
        );
    }
    for (host, is_plain) in [
        ("a.example:443", true),
        ("[2001:4860:4860::8888]:443", true),
        ("[2001:4860:4860::8888]", true),
        ("a.example:+443", false),
        ("a.example:0443", false),
        ("[2001:4860:4860::8888]:+443", false),
    ] {
        let url = format!("https://{host}/");
        let wanted = if is_plain { Ok(()) } else { Err(EgressRefused::PortForm) };
        assert_eq!((strict().accept(&url), strict().target(&url).is_ok()), (wanted, true), "{url}");
    }
    let told = |url: &str| strict().accept(url).expect_err("refused").to_string();
    assert_eq!(
        told("https://a.example/\u{e4}"),
        "the callback URL holds 'ä', which no URL does: write it percent-encoded, %C3%A4"
    );
    assert_eq!(told("https://a.example/b\n"), "the callback URL holds the control character U+000A");
    assert_eq!(told("https://a.example/b "), "the callback URL ends with a blank");
}
