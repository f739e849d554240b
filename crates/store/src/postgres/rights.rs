//! Whether our role may do with our tables what a node does with them. Somebody else may have made one of them, `countersign migrate` under another role for
//! example; without it a node would answer, and lack a part of itself.

use super::dial::Dial;
use super::fault::fault;
use super::session::Session;
use super::{PostgresOptions, PostgresStore, schema};
use crate::contract::StoreError;

/// Tables that are named in a sentence at most.
const NAMED_MAX: usize = 5;

/// Our tables that the role may not read and write as it likes; and the role and the schema.
const LACKING: &str = "
    SELECT quote_ident(c.relname), quote_ident(current_user), quote_ident(current_schema()) FROM pg_catalog.pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND c.relname = ANY ($1)
        AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
            AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
    ORDER BY 1";

/// What the role lacks, in words that say what to run; none: nothing, or there are no tables.
async fn lacking(dial: &Dial, session: &Session) -> Result<Option<String>, StoreError> {
    let look = async { session.client().query(LACKING, &[&schema::tables()]).await.map_err(fault) };
    let rows = dial.in_time(look).await?;
    let tables: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(words(&tables, row.get(1), row.get(2))))
}

fn words(tables: &[&str], role: &str, schema: &str) -> String {
    let all = tables.iter().map(|table| format!("{schema}.{table}")).collect::<Vec<_>>().join(", ");
    let (named, on) = if tables.len() > NAMED_MAX {
        let named = tables[..NAMED_MAX].join(", ");
        (format!("{} tables, among them {named}", tables.len()), format!("ALL TABLES IN SCHEMA {schema}"))
    } else {
        (all.clone(), all)
    };
    format!(
        "the role {role} may not SELECT, INSERT, UPDATE and DELETE in {named}: whoever owns them runs `GRANT SELECT, INSERT, UPDATE, DELETE ON {on} TO {role}`; \
         where this role shall upgrade the schema, too, `ALTER TABLE ... OWNER TO {role}` for each"
    )
}

/// Refuses a role that lacks any of it.
pub(super) async fn demand(dial: &Dial, session: &Session) -> Result<(), StoreError> {
    match lacking(dial, session).await? {
        None => Ok(()),
        Some(why) => Err(StoreError::Unfit(why)),
    }
}

impl PostgresStore {
    /// What the role of an address lacks on the tables that are there, in words. `Unfit` and `Unavailable` as [`PostgresStore::open`].
    pub async fn lacking(options: &PostgresOptions) -> Result<Option<String>, StoreError> {
        let dial = Dial::of(options)?;
        lacking(&dial, &dial.reading().await?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_tables_are_counted_and_few_are_named_in_a_statement_that_can_be_run() {
        let few = words(&["a", "\"B\""], "cs", "public");
        assert!(few.contains("`GRANT SELECT, INSERT, UPDATE, DELETE ON public.a, public.\"B\" TO cs`"), "{few}");
        let many = words(&["a", "b", "c", "d", "e", "f"], "cs", "public");
        assert!(
            many.contains("6 tables, among them a, b, c, d, e:")
                && many.contains("ON ALL TABLES IN SCHEMA public TO cs`"),
            "{many}"
        );
    }
}
