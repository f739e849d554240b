//! How a row of PostgreSQL is read.

use tokio_postgres::Row;

use crate::read::{Columns, WrongType, hex};

pub(super) use crate::read::*;

impl Columns for Row {
    fn int(&self, at: usize) -> Result<Option<i64>, WrongType> {
        self.try_get(at).map_err(|_| WrongType)
    }

    fn flag(&self, at: usize) -> Result<Option<bool>, WrongType> {
        self.try_get(at).map_err(|_| WrongType)
    }

    fn text(&self, at: usize) -> Result<Option<&str>, WrongType> {
        self.try_get(at).map_err(|_| WrongType)
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, WrongType> {
        self.try_get(at).map_err(|_| WrongType)
    }

    fn name(&self, at: usize) -> Option<String> {
        match (self.int(at), self.text(at), self.blob(at)) {
            (Ok(Some(key)), _, _) => Some(key.to_string()),
            (_, Ok(Some(key)), _) => Some(key.to_owned()),
            (_, _, Ok(Some(key))) => Some(hex(key)),
            _ => None,
        }
    }
}
