//! Where our tables are, in a database whose schema that is looked into has none.

use super::dial::Dial;
use super::fault::fault;
use super::session::Session;
use crate::contract::StoreError;

/// A schema of the database that has our tables, and that is not looked into: one that the search path names before any
/// that is, or else one that the role may use. What is neither is somebody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its name, as it is written in a statement; the other names here, too.
    pub schema: String,
    /// Whether the role may use it: without that the search path does not lead to it, wherever it stands there.
    pub may_use: bool,
    /// The role.
    pub role: String,
    /// The schema that is looked into, if there is one.
    pub here: Option<String>,
}

/// None: nowhere else.
pub(super) async fn elsewhere(dial: &Dial) -> Result<Option<Elsewhere>, StoreError> {
    let mut session = dial.session().await?;
    dial.in_time(Box::pin(look(&mut session))).await
}

async fn look(session: &mut Session) -> Result<Option<Elsewhere>, StoreError> {
    let transaction = session.transaction().await.map_err(fault)?;
    // The catalog tells everybody, whoever may read the tables.
    let select = "SELECT quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE'), quote_ident(current_user), quote_ident(current_schema())
                  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                    CROSS JOIN LATERAL (
                      SELECT min(place) FILTER (WHERE name = n.nspname) AS there, min(place) FILTER (WHERE name = current_schema()) AS here
                      FROM (SELECT place, CASE btrim(entry, ' \"') WHEN '$user' THEN current_user::text ELSE btrim(entry, ' \"') END AS name
                            FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY AS s (entry, place)) AS entries) AS path
                  WHERE c.relname = 'schema_step' AND c.relkind = 'r' AND n.nspname IS DISTINCT FROM current_schema()
                    AND EXISTS (SELECT FROM pg_catalog.pg_class o WHERE o.relnamespace = n.oid AND o.relname = 'payment_order')
                    AND (path.there < coalesce(path.here, 1000) OR has_schema_privilege(n.oid, 'USAGE'))
                  ORDER BY path.there NULLS LAST, 1 LIMIT 1";
    let row = transaction.query_opt(select, &[]).await.map_err(fault)?;
    Ok(row.map(|row| Elsewhere { schema: row.get(0), may_use: row.get(1), role: row.get(2), here: row.get(3) }))
}
