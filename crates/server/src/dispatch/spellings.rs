//! How people, libraries and attackers write an address as the host of a URL: for the tests of the guard over callback URLs, here and in the testkit,
//! which takes this same file.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Of an IPv4 address.
pub(crate) fn of_v4(v4: Ipv4Addr) -> Vec<String> {
    let (bits, [a, b, c, d]) = (v4.to_bits(), v4.octets());
    let plain = v4.to_string();
    // Full-width digits and an ideographic full stop: what IDNA makes of them is the address.
    let wide: String = plain
        .chars()
        .map(|sign| sign.to_digit(10).map_or('\u{3002}', |digit| char::from_u32(0xff10 + digit).unwrap_or(sign)))
        .collect();
    let encoded = plain.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
    vec![
        plain.clone(),
        format!("{plain}."),
        format!("{plain}.."),
        bits.to_string(),
        format!("{bits}."),
        format!("{bits:#x}"),
        format!("0X{bits:X}"),
        format!("0{bits:o}"),
        (u64::from(bits) + (1 << 32)).to_string(),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:03}.{b:03}.{c:03}.{d:03}"),
        format!("{a}.{}", bits & 0xff_ffff),
        format!("{a}.{b}.{}", bits & 0xffff),
        format!("{a:#x}.{}", bits & 0xff_ffff),
        format!("{a:#x}.{:#x}", bits & 0xff_ffff),
        format!("{a}.{b}.{c}.{d:#x}"),
        format!("{a}.0x{b:x}.0{c:o}.{d}"),
        format!("[{plain}]"),
        format!("[::{plain}%lo]"),
        format!("{plain}%00"),
        format!("{plain}%2f.merchant.example"),
        plain.replace('.', "%2e"),
        encoded,
        plain.replace('.', "\u{3002}"),
        format!("{plain}\u{3002}"),
        wide,
        format!("{plain}\\@merchant.example"),
        format!("{plain}#@merchant.example"),
        format!("{plain}?@merchant.example"),
        format!("{plain}\t"),
        format!(" {plain}"),
    ]
}

/// Of an IPv6 address.
pub(crate) fn of_v6(v6: Ipv6Addr) -> Vec<String> {
    let each = |write: fn(u16) -> String| v6.segments().map(write).join(":");
    let short = each(|segment| format!("{segment:x}"));
    let tail = Ipv4Addr::from_bits(u32::try_from(v6.to_bits() & 0xffff_ffff).unwrap_or_default());
    let front = short.split(':').take(6).collect::<Vec<_>>().join(":");
    vec![
        format!("[{v6}]"),
        format!("[{short}]"),
        format!("[{}]", each(|segment| format!("{segment:04X}"))),
        format!("[{front}:{tail}]"),
        format!("[{v6}%25lo]"),
        format!("[{v6}%lo]"),
        format!("[{v6}%1]"),
        v6.to_string(),
        format!("[[{v6}]]"),
        format!("[{v6}"),
        format!("{}.ipv6-literal.net.", v6.to_string().replace(':', "-")),
    ]
}
