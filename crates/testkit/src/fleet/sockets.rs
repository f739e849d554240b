//! Which connections a process has open, from /proc: what a process that is about to die has under way.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};

const ESTABLISHED: &str = "01";

/// How many established connections process `pid` has to `address`.
pub fn connections(pid: u32, address: SocketAddr) -> Result<usize> {
    let mut own = HashSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that is closed meanwhile is none.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        own.extend(target.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')).map(str::to_owned));
    }
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    count(&table, &own, address)
}

/// The lines of a table of connections that lead to `address` and belong to one of these inodes.
fn count(table: &str, own: &HashSet<String>, address: SocketAddr) -> Result<usize> {
    let IpAddr::V4(ip) = address.ip() else { bail!("only addresses of IPv4 are looked for") };
    let wanted = format!("{:08X}:{:04X}", u32::from_le_bytes(ip.octets()), address.port());
    let mut lines = 0;
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode = fields.get(9).context("a line of /proc/net/tcp has ten fields and more")?;
        lines += usize::from(fields[2] == wanted && fields[3] == ESTABLISHED && own.contains(*inode));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 -1
   2: 0100007F:9C41 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
   3: 0100007F:9C42 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 103 1 0 20 4 30 10 -1
   4: 0100007F:9C43 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 104 1 0 20 4 30 10 -1
";

    #[test]
    fn a_connection_counts_if_it_is_open_and_leads_there_and_is_its_own() {
        let own: HashSet<String> = ["100", "101", "102", "104"].map(str::to_owned).into();
        let there = "127.0.0.1:8080".parse().expect("an address");
        assert_eq!(count(TABLE, &own, there).expect("a table"), 1);
    }

    #[tokio::test]
    async fn our_own_connections_are_found() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut open = Vec::new();
        for n in 0..3 {
            assert_eq!(connections(std::process::id(), address).expect("our own"), n);
            open.push(tokio::net::TcpStream::connect(address).await.expect("connects"));
        }
        assert_eq!(open.len(), 3);
    }
}
