//! Nodes that only their rows know of.

use super::Database;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Feigned<'a> {
    /// Each byte of its id, and its name: `node 7`.
    pub node: u8,
    /// What it has noted of its settings; none: its program is from before nodes did.
    pub settings: Option<&'a str>,
    /// How long ago its heart beat last, in ms.
    pub seen_ms_ago: i64,
}

impl Database {
    /// Puts such a node there, or brings its rows up to date.
    pub async fn feign(&self, node: Feigned<'_>) {
        let Feigned { node, settings, seen_ms_ago } = node;
        let (client, id, name) = (self.client().await, [node; 16], format!("node {node}"));
        let seen = "INSERT INTO node (node_id, name, started_at, seen_at)
            SELECT $1, $2, at, at FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $3 AS at) t
            ON CONFLICT (node_id) DO UPDATE SET seen_at = excluded.seen_at";
        client.execute(seen, &[&id.as_slice(), &name, &seen_ms_ago]).await.expect("is written");
        // As a program wrote its row that knew of no settings.
        let says = "INSERT INTO node_program (node_id, version, key_id) VALUES ($1, '0.1.0', 'k') ON CONFLICT (node_id) DO NOTHING";
        client.execute(says, &[&id.as_slice()]).await.expect("is written");
        if let Some(settings) = settings {
            let notes = "UPDATE node_program SET settings = $2 WHERE node_id = $1";
            client.execute(notes, &[&id.as_slice(), &settings]).await.expect("is written");
        }
    }

    /// What nodes have noted of their settings: all of it, in no order.
    pub async fn noted_settings(&self) -> Vec<String> {
        let noted = "SELECT settings FROM node_program WHERE settings IS NOT NULL";
        self.client().await.query(noted, &[]).await.expect("reads").iter().map(|row| row.get(0)).collect()
    }
}
