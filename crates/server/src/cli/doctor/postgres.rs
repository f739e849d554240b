//! What `doctor` says of a database that many nodes share.

use countersign_domain::time::UnixMillis;
use countersign_store::nodes::NodeRow;
use countersign_store::postgres::{ServerState, Share};
use countersign_store::{AnyStore, PostgresStore, Store as _, StoreError};

use super::{Findings, Schema, Verdict, examine_deployment, examine_schema};
use crate::app::nodes::NODES_MAX;
use crate::config::{Config, differing};
use crate::datadir::DataDir;
use crate::run;
use crate::run::durability::{Word, words};
use crate::vault::Vault;

/// Looks at a shared database without changing it; nodes may be running on it. What its time is, if it could be opened.
pub(super) fn examine(
    config: &Config,
    url: &str,
    data: &DataDir,
    key: Option<&Vault>,
    findings: &mut Findings,
) -> anyhow::Result<Option<UnixMillis>> {
    Ok(super::super::small_runtime()?.block_on(async {
        let schema = examine_before(config, url, data, findings).await?;
        examine_deployment(schema, config, data, key, findings).await
    }))
}

/// What can be seen before it is opened as a deployment's; none: it is not to be opened.
async fn examine_before(config: &Config, url: &str, data: &DataDir, findings: &mut Findings) -> Option<Schema> {
    let options = match run::postgres_options(config, url) {
        Ok(options) => options,
        Err(error) => return findings.fail("database", format!("{error:#}")),
    };
    // First of all: what is asked after that may find anything there.
    if let Err(shared @ StoreError::Unfit(_)) = PostgresStore::refuse_shared(&options).await {
        return findings.fail("database", run::cause(&shared));
    }
    match PostgresStore::server_state(&options).await {
        Ok(state) => of_server(&state, options.connections(), findings),
        Err(error) => return findings.fail("database", run::cause(&error)),
    }
    if let Ok(Some(split)) = PostgresStore::split(&options).await {
        let text = format!("{split}: nodes use the newest timeline; stop or fence the others at once");
        findings.note(Verdict::Fail, "database", text);
    }
    match PostgresStore::lacking(&options).await {
        Ok(None) => {}
        Ok(Some(why)) => return findings.fail("rights", why),
        Err(error) => return findings.fail("rights", run::cause(&error)),
    }
    let state = PostgresStore::schema_state(&options).await.map_err(anyhow::Error::from);
    if matches!(&state, Ok(state) if state.applied == 0)
        && let Err(cut_off) = run::missing_deployment::refuse_half_restored(data)
    {
        return findings.fail("database", cut_off.to_string());
    }
    // `init` would make a second deployment beside the one that is meant.
    if matches!(&state, Ok(state) if state.applied == 0)
        && let Ok(Some(elsewhere)) = PostgresStore::elsewhere(&options).await
    {
        return findings.fail("schema", run::misled(&elsewhere));
    }
    Some(examine_schema(config, state, findings))
}

/// Names the nodes that run with other settings than `config` where they have to be the same.
pub(super) async fn examine_nodes(config: &Config, store: &AnyStore, findings: &mut Findings) {
    let lease_ms = i64::try_from(config.dispatch_lease.0.as_millis()).unwrap_or(i64::MAX);
    let rows = match store.nodes(lease_ms, NODES_MAX).await {
        Ok(rows) => rows,
        Err(error) => return findings.note(Verdict::Fail, "nodes", run::cause(&error)),
    };
    let here = config.of_all_nodes();
    for NodeRow { who, .. } in rows.iter().filter(|row| row.is_alive) {
        let differing = differing(&here, &who.settings).unwrap_or_default();
        if !differing.is_empty() {
            let (name, id, settings) = (&who.name, who.node, differing.join(", "));
            let text = format!("{name} ({id}) runs with other settings than these: {settings}");
            findings.note(Verdict::Warn, "nodes", text);
        }
    }
}

fn of_server(state: &ServerState, needed: usize, findings: &mut Findings) {
    let ServerState {
        place,
        version,
        is_encrypted,
        is_local,
        connections_max,
        connections,
        of_role,
        of_database,
        durability,
    } = state;
    let how = match (is_encrypted, is_local) {
        (true, _) => "encrypted",
        (false, true) => "on this machine",
        (false, false) => "not encrypted",
    };
    findings.note(Verdict::Ok, "database", format!("PostgreSQL {version} at {place} answers, {how}"));
    if !is_encrypted && !is_local {
        findings.note(
            Verdict::Warn,
            "database",
            "the connection to another machine is not encrypted: add ?sslmode=require to the address",
        );
    }
    for word in words(durability) {
        match word {
            Word::Fine(text) => findings.note(Verdict::Ok, "durability", text),
            Word::Warning(text) => findings.note(Verdict::Warn, "durability", text),
        }
    }
    let all = Share { most: Some(*connections_max), taken: *connections };
    let shares = [
        ("", all, "raise max_connections"),
        (" for this role", *of_role, "raise its limit (ALTER ROLE ... CONNECTION LIMIT)"),
        (" for this database", *of_database, "raise its limit (ALTER DATABASE ... CONNECTION LIMIT)"),
    ];
    for (whose, Share { most, taken }, mend) in shares {
        let Some(most) = most else { continue };
        // Our own connection is among the open ones, and ends with us.
        let free = most - taken + 1;
        let enough = i64::try_from(needed).is_ok_and(|needed| needed <= free);
        let text = format!("{free} of {most}{whose} are free, this node needs up to {needed}");
        if enough {
            findings.note(Verdict::Ok, "connections", text);
        } else {
            findings.note(Verdict::Warn, "connections", format!("{text}: {mend}, unless it runs already"));
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_store::postgres::Durability;

    use super::*;

    fn said(change: impl FnOnce(&mut ServerState)) -> Vec<String> {
        let durability = Durability {
            standbys: 0,
            synchronous: 0,
            is_hidden: false,
            is_demanded: false,
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
        };
        let mut state = ServerState {
            place: "db.example:5432/countersign".to_owned(),
            version: "15.8".to_owned(),
            is_encrypted: true,
            is_local: false,
            connections_max: 97,
            connections: 90,
            of_role: Share::default(),
            of_database: Share { most: Some(50), taken: 43 },
            durability,
        };
        change(&mut state);
        let mut findings = Findings::default();
        of_server(&state, 8, &mut findings);
        findings.text().lines().filter(|line| line.starts_with("warn")).map(str::to_owned).collect()
    }

    #[test]
    fn a_plain_connection_to_another_machine_is_a_warning_and_one_on_this_machine_is_not() {
        let plain = said(|state| state.is_encrypted = false);
        assert!(plain.len() == 1 && plain[0].contains("sslmode=require"), "{plain:?}");
        assert_eq!(said(|_| ()), [] as [String; 0]);
        assert_eq!(
            said(|state| {
                state.is_encrypted = false;
                state.is_local = true;
            }),
            [] as [String; 0]
        );
    }

    #[test]
    fn too_few_free_connections_are_a_warning_with_both_numbers() {
        let full = said(|state| state.connections = 91);
        assert!(full.len() == 1 && full[0].contains("7 of 97 are free, this node needs up to 8"), "{full:?}");
        let of_role = said(|state| state.of_role = Share { most: Some(4), taken: 1 });
        assert!(of_role.len() == 1 && of_role[0].contains("4 of 4 for this role are free"), "{of_role:?}");
        let of_database = said(|state| state.of_database.taken = 44);
        assert!(of_database.len() == 1 && of_database[0].contains("7 of 50 for this database"), "{of_database:?}");
    }
}
