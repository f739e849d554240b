//! How a row of SQLite is read.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::attempt_log::AttemptBytes;
use crate::chain::{ChainHead, ChainLine};
use crate::contract::{
    AttemptRow, AuditRow, EventRow, IdempotencyRow, OwedRow, SealedSecret, SecretRow, StoreError, TokenRow, TurningRow,
};
use crate::read::{self, Columns, WrongType, hex};

pub(super) use crate::read::{Fields, convert_order, merchant, rule};

/// Readers of whole rows, for rows that live as long as they like.
macro_rules! whole {
    ($($name:ident: $row:ty),* $(,)?) => {
        $( pub(super) fn $name(row: &Row<'_>) -> Result<$row, StoreError> { read::$name(row) } )*
    };
}

whole! {
    secret: SecretRow,
    token: TokenRow,
    uses: (String, i64),
    event: EventRow,
    attempt: AttemptRow,
    owed: OwedRow,
    attempt_bytes: AttemptBytes,
    turning: TurningRow,
    remembered: IdempotencyRow,
    audit: AuditRow,
    chain_line: ChainLine,
    chain_head: ChainHead,
    sealed: SealedSecret,
}

impl Columns for Row<'_> {
    fn int(&self, at: usize) -> Result<Option<i64>, WrongType> {
        match self.get_ref(at) {
            Ok(ValueRef::Integer(value)) => Ok(Some(value)),
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_)) | Err(_) => Err(WrongType),
        }
    }

    fn flag(&self, at: usize) -> Result<Option<bool>, WrongType> {
        match self.int(at)? {
            Some(0) => Ok(Some(false)),
            Some(1) => Ok(Some(true)),
            Some(_) => Err(WrongType),
            None => Ok(None),
        }
    }

    fn text(&self, at: usize) -> Result<Option<&str>, WrongType> {
        match self.get_ref(at) {
            Ok(ValueRef::Text(text)) => std::str::from_utf8(text).map(Some).map_err(|_| WrongType),
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_)) | Err(_) => Err(WrongType),
        }
    }

    fn blob(&self, at: usize) -> Result<Option<&[u8]>, WrongType> {
        match self.get_ref(at) {
            Ok(ValueRef::Blob(bytes)) => Ok(Some(bytes)),
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_)) | Err(_) => Err(WrongType),
        }
    }

    fn name(&self, at: usize) -> Option<String> {
        match self.get_ref(at) {
            Ok(ValueRef::Integer(key)) => Some(key.to_string()),
            Ok(ValueRef::Text(key)) => Some(String::from_utf8_lossy(key).into_owned()),
            Ok(ValueRef::Blob(key)) => Some(hex(key)),
            Ok(ValueRef::Null | ValueRef::Real(_)) | Err(_) => None,
        }
    }
}
