//! One value of a row, read alike from both databases, and written alike for a digest.

use tokio_postgres::types::{ToSql, Type};

use super::tables::{Column, Kind};
use crate::read::{Columns, WrongType, hex};

/// A value; `None` is SQL's null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Int(Option<i64>),
    Text(Option<String>),
    Blob(Option<Vec<u8>>),
    Flag(Option<bool>),
}

impl Kind {
    pub(crate) const fn postgres(self) -> Type {
        match self {
            Self::Int => Type::INT8,
            Self::Text => Type::TEXT,
            Self::Blob => Type::BYTEA,
            Self::Flag => Type::BOOL,
        }
    }
}

/// Reads a row; the number of the column that cannot be read, if there is one.
pub(crate) fn read(row: &impl Columns, columns: &[Column]) -> Result<Vec<Cell>, usize> {
    let one = |(at, column): (usize, &Column)| -> Result<Cell, WrongType> {
        Ok(match column.kind {
            Kind::Int => Cell::Int(row.int(at)?),
            Kind::Text => Cell::Text(row.text(at)?.map(str::to_owned)),
            Kind::Blob => Cell::Blob(row.blob(at)?.map(<[u8]>::to_vec)),
            Kind::Flag => Cell::Flag(row.flag(at)?),
        })
    };
    columns.iter().enumerate().map(|(at, column)| one((at, column)).map_err(|WrongType| at)).collect()
}

impl Cell {
    pub(crate) fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(value) => value,
            Self::Text(value) => value,
            Self::Blob(value) => value,
            Self::Flag(value) => value,
        }
    }

    /// Whether it is a text that PostgreSQL cannot hold.
    pub(crate) fn holds_nul(&self) -> bool {
        matches!(self, Self::Text(Some(text)) if text.contains('\0'))
    }

    /// Bytes that this cell needs, about.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Text(Some(text)) => text.len(),
            Self::Blob(Some(bytes)) => bytes.len(),
            Self::Int(_) | Self::Text(None) | Self::Blob(None) | Self::Flag(_) => 8,
        }
    }

    /// Appends the value so that no two rows of a table are written alike: a tag, then a length where it is not fixed, then the value.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let mut sized = |tag: u8, bytes: &[u8]| {
            to.push(tag);
            to.extend((bytes.len() as u64).to_be_bytes());
            to.extend(bytes);
        };
        match self {
            Self::Int(Some(value)) => sized(1, &value.to_be_bytes()),
            Self::Text(Some(text)) => sized(2, text.as_bytes()),
            Self::Blob(Some(bytes)) => sized(3, bytes),
            Self::Flag(Some(value)) => sized(4, &[u8::from(*value)]),
            Self::Int(None) | Self::Text(None) | Self::Blob(None) | Self::Flag(None) => to.push(0),
        }
    }

    /// The value in words, to name a row by.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Int(Some(value)) => value.to_string(),
            Self::Text(Some(text)) => text.clone(),
            Self::Blob(Some(bytes)) => hex(bytes),
            Self::Flag(Some(value)) => value.to_string(),
            Self::Int(None) | Self::Text(None) | Self::Blob(None) | Self::Flag(None) => "null".to_owned(),
        }
    }
}
