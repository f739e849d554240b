//! Both sides read in the same order, every value of every row compared.

use aws_lc_rs::digest::{Context, SHA256};

use super::tables::Kind;
use super::{BYTES_PER_PORTION, Cell, MoveError, Progress, ROWS_PER_PORTION, Table, TableReport};
use crate::postgres::moving::Target;
use crate::read::hex;
use crate::sqlite::moving::Source;

/// What was read of one side.
struct Side {
    rows: u64,
    sums: Vec<(&'static str, i128)>,
    digest: Context,
    scratch: Vec<u8>,
}

impl Side {
    fn new(table: &Table) -> Self {
        let integers = table.columns.iter().filter(|column| column.kind == Kind::Int);
        let sums = integers.map(|column| (column.name, 0)).collect();
        Self { rows: 0, sums, digest: Context::new(&SHA256), scratch: Vec::new() }
    }

    fn take(&mut self, row: &[Cell]) {
        self.rows += 1;
        self.scratch.clear();
        let mut sums = self.sums.iter_mut();
        for cell in row {
            cell.write(&mut self.scratch);
            if let Cell::Int(value) = cell
                && let Some((_, sum)) = sums.next()
            {
                *sum += i128::from(value.unwrap_or_default());
            }
        }
        self.digest.update(&self.scratch);
    }

    fn report(self, table: &Table) -> TableReport {
        let digest = hex(self.digest.finish().as_ref());
        TableReport { table: table.name, rows: self.rows, sums: self.sums, digest }
    }
}

/// Reads a table on both sides; the first row that is not the same ends it.
pub(super) async fn table(
    source: &Source,
    target: &mut Target,
    table: &'static Table,
    tell: &mut impl FnMut(Progress),
) -> Result<TableReport, MoveError> {
    let differs = |what: String| MoveError::Differs { table: table.name, what };
    let (mut left, mut right) = (Side::new(table), Side::new(table));
    let mut portions = source.rows(table, 0, ROWS_PER_PORTION, BYTES_PER_PORTION);
    let mut fetched = target.rows(table).await?;
    let mut there = fetched.next().await?.into_iter();
    while let Some(portion) = portions.next().await? {
        let rows = portion.len() as u64;
        for row in portion {
            left.take(&row);
            if there.as_slice().is_empty() {
                there = fetched.next().await?.into_iter();
            }
            let Some(copied) = there.next() else {
                return Err(differs(format!("row {} is missing in the target", table.row_in_words(&row))));
            };
            right.take(&copied);
            if row != copied {
                return Err(differs(difference(table, &row, &copied)));
            }
        }
        tell(Progress::Compared { table: table.name, rows });
    }
    if there.as_slice().is_empty() {
        there = fetched.next().await?.into_iter();
    }
    if let Some(more) = there.next() {
        return Err(differs(format!("row {} of the target is not in the source", table.row_in_words(&more))));
    }
    let (left, right) = (left.report(table), right.report(table));
    if left == right { Ok(left) } else { Err(differs("the digests are not the same".to_owned())) }
}

fn difference(table: &Table, row: &[Cell], copied: &[Cell]) -> String {
    let (here, there) = (table.row_in_words(row), table.row_in_words(copied));
    if here != there {
        return format!("the source has row {here} where the target has row {there}");
    }
    let columns = table.columns.iter().zip(row.iter().zip(copied));
    let columns: Vec<&str> = columns.filter(|(_, (a, b))| a != b).map(|(column, _)| column.name).collect();
    format!("row {here} has another {}", columns.join(", "))
}
