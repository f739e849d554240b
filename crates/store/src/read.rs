//! Rows read back as values of the domain. What cannot be is `Corrupt`, never a panic and never a guess.

use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::Fence;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::rules::{Markup, RuleVersion};
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;

use crate::attempt_log::{AttemptBytes, OldBytes, OldEvents, Phases};
use crate::chain::{ChainHead, ChainLine, ChainPlace};
use crate::contract::{
    ApplicationRow, AttemptRow, AuditRow, EndpointSettings, EventRow, IdempotencyRow, MerchantRow, OwedRow,
    SealedSecret, SecretRow, StoreError, TokenRow, TurningRow,
};
use crate::words;

/// A value of another type than was asked for.
#[derive(Debug)]
pub(crate) struct WrongType;

/// One row of a result, as its dialect reads it. Columns are counted from 0; `None` is SQL's null.
pub(crate) trait Columns {
    /// An integer.
    fn int(&self, at: usize) -> Result<Option<i64>, WrongType>;
    /// A yes or no.
    fn flag(&self, at: usize) -> Result<Option<bool>, WrongType>;
    /// A text.
    fn text(&self, at: usize) -> Result<Option<&str>, WrongType>;
    /// Bytes.
    fn blob(&self, at: usize) -> Result<Option<&[u8]>, WrongType>;
    /// The column in words, to name a row by; `None` where it is null or cannot be read.
    fn name(&self, at: usize) -> Option<String>;
}

/// The columns of one table in one row, read from left to right.
pub(crate) struct Fields<'r, R> {
    row: &'r R,
    table: &'static str,
    key: usize,
    next: usize,
}

impl<'r, R: Columns> Fields<'r, R> {
    /// Begins at column `first`; column `key` names the row in an error.
    pub(crate) const fn new(row: &'r R, table: &'static str, first: usize, key: usize) -> Self {
        Self { row, table, key, next: first }
    }

    /// Where the next table's columns begin.
    pub(crate) const fn next(&self) -> usize {
        self.next
    }

    /// Whether the whole row is missing (an outer join): its key is null.
    pub(crate) fn is_missing(&self) -> bool {
        self.row.int(self.key).is_ok_and(|key| key.is_none())
    }

    pub(crate) fn corrupt(&self) -> StoreError {
        let row = self.row.name(self.key).unwrap_or_else(|| "?".to_owned());
        StoreError::Corrupt { table: self.table, row }
    }

    fn column(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn opt_int(&mut self) -> Result<Option<i64>, StoreError> {
        let at = self.column();
        self.row.int(at).map_err(|WrongType| self.corrupt())
    }

    pub(crate) fn int(&mut self) -> Result<i64, StoreError> {
        self.opt_int()?.ok_or_else(|| self.corrupt())
    }

    /// An integer that is not below `least`.
    pub(crate) fn count(&mut self, least: i64) -> Result<i64, StoreError> {
        let value = self.int()?;
        if value < least { Err(self.corrupt()) } else { Ok(value) }
    }

    pub(crate) fn millis(&mut self) -> Result<UnixMillis, StoreError> {
        self.int().map(UnixMillis)
    }

    pub(crate) fn opt_millis(&mut self) -> Result<Option<UnixMillis>, StoreError> {
        Ok(self.opt_int()?.map(UnixMillis))
    }

    pub(crate) fn amount(&mut self) -> Result<Amount, StoreError> {
        self.int().map(Amount::from_micros)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, StoreError> {
        let at = self.column();
        self.row.flag(at).ok().flatten().ok_or_else(|| self.corrupt())
    }

    fn small<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        T::try_from(self.int()?).map_err(|_| self.corrupt())
    }

    fn opt_small<T: TryFrom<i64>>(&mut self) -> Result<Option<T>, StoreError> {
        self.opt_int()?.map(|value| T::try_from(value).map_err(|_| self.corrupt())).transpose()
    }

    fn opt_flag(&mut self) -> Result<Option<bool>, StoreError> {
        let at = self.column();
        self.row.flag(at).map_err(|WrongType| self.corrupt())
    }

    /// A length of time; none below 0.
    fn opt_micros(&mut self) -> Result<Option<i64>, StoreError> {
        let value = self.opt_int()?;
        if value.is_some_and(|us| us < 0) { Err(self.corrupt()) } else { Ok(value) }
    }

    fn opt_str(&mut self) -> Result<Option<&'r str>, StoreError> {
        let at = self.column();
        self.row.text(at).map_err(|WrongType| self.corrupt())
    }

    fn str(&mut self) -> Result<&'r str, StoreError> {
        self.opt_str()?.ok_or_else(|| self.corrupt())
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.str().map(str::to_owned)
    }

    pub(crate) fn opt_text(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.opt_str()?.map(str::to_owned))
    }

    fn opt_blob(&mut self) -> Result<Option<&'r [u8]>, StoreError> {
        let at = self.column();
        self.row.blob(at).map_err(|WrongType| self.corrupt())
    }

    pub(crate) fn blob(&mut self) -> Result<&'r [u8], StoreError> {
        self.opt_blob()?.ok_or_else(|| self.corrupt())
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        <[u8; N]>::try_from(self.blob()?).map_err(|_| self.corrupt())
    }

    pub(crate) fn opt_bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, StoreError> {
        let bytes = self.opt_blob()?.map(<[u8; N]>::try_from);
        bytes.transpose().map_err(|_| self.corrupt())
    }

    fn sorted_id(&mut self) -> Result<SortedId, StoreError> {
        self.bytes().map(|bytes| SortedId(u128::from_be_bytes(bytes)))
    }

    fn opt_sorted_id(&mut self) -> Result<Option<SortedId>, StoreError> {
        let Some(bytes) = self.opt_blob()? else { return Ok(None) };
        let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| self.corrupt())?;
        Ok(Some(SortedId(u128::from_be_bytes(bytes))))
    }

    /// A word of one of our enums.
    pub(crate) fn word<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.str()?;
        read(text).ok_or_else(|| self.corrupt())
    }

    fn endpoint(&mut self) -> Result<EndpointSettings, StoreError> {
        let (rate_per_s, concurrency) = (self.opt_small()?, self.opt_small::<u32>()?);
        let schedule = self.opt_str()?.map(|text| words::schedule(text).ok_or_else(|| self.corrupt())).transpose()?;
        if concurrency == Some(0) {
            return Err(self.corrupt());
        }
        Ok(EndpointSettings { rate_per_s, concurrency, schedule })
    }

    pub(crate) fn decimal(&mut self) -> Result<Decimal, StoreError> {
        self.word(exact)
    }

    pub(crate) fn currency(&mut self) -> Result<Currency, StoreError> {
        self.word(Currency::parse)
    }
}

/// Lowercase hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('?'));
        }
        text
    })
}

/// A plain decimal as `Decimal` writes it. `from_str_exact` alone would take `1_000` and `+1`.
pub(crate) fn exact(text: &str) -> Option<Decimal> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { Decimal::from_str_exact(text).ok() } else { None }
}

pub(crate) fn merchant<R: Columns>(row: &R, first: usize) -> Result<(MerchantRow, usize), StoreError> {
    let mut f = Fields::new(row, "merchant", first, first + 1);
    let tenant = TenantNo(f.int()?);
    let merchant = MerchantRow {
        no: MerchantNo(f.int()?),
        merchant_id: f.text()?,
        tenant,
        kind: f.word(words::kind)?,
        name: f.text()?,
        base_r: f.decimal()?,
        base_f: f.amount()?,
        user_id: f.int()?,
        enabled: f.flag()?,
        revision: f.count(1)?,
        created_at: f.millis()?,
    };
    Ok((merchant, f.next()))
}

pub(crate) fn application<R: Columns>(row: &R) -> Result<(ApplicationRow, usize), StoreError> {
    let mut f = Fields::new(row, "application", 0, 1);
    let tenant = TenantNo(f.int()?);
    let application = ApplicationRow {
        no: ApplicationNo(f.int()?),
        client_id: f.text()?,
        tenant,
        merchant: MerchantNo(f.int()?),
        name: f.text()?,
        enabled: f.flag()?,
        callback_url: f.opt_text()?,
        callback_enabled: f.flag()?,
        callback_gone_at: f.opt_millis()?,
        callback_encoding: f.word(words::encoding)?,
        callback_vocabulary: f.word(words::vocabulary)?,
        timestamp_tolerance_ms: f.opt_int()?,
        tolerance_before_ms: f.opt_int()?,
        tolerance_raised_at: f.opt_millis()?,
        rate_limit_per_s: f.opt_small()?,
        endpoint: f.endpoint()?,
        revision: f.count(1)?,
        created_at: f.millis()?,
    };
    Ok((application, f.next()))
}

pub(crate) fn secret<R: Columns>(row: &R) -> Result<SecretRow, StoreError> {
    secret_at(row, 0)
}

pub(crate) fn secret_at<R: Columns>(row: &R, first: usize) -> Result<SecretRow, StoreError> {
    let mut f = Fields::new(row, "secret", first, first + 1);
    let application = ApplicationNo(f.int()?);
    Ok(SecretRow {
        secret_id: f.text()?,
        application,
        key_id: f.text()?,
        sealed: f.blob()?.to_vec(),
        fingerprint: f.text()?,
        last4: f.text()?,
        signs_callbacks: f.flag()?,
        created_at: f.millis()?,
        not_after: f.opt_millis()?,
        revoked_at: f.opt_millis()?,
        last_used_at: f.opt_millis()?,
    })
}

/// A secret's id and a number of uses.
pub(crate) fn uses<R: Columns>(row: &R) -> Result<(String, i64), StoreError> {
    let mut f = Fields::new(row, "secret_use", 0, 0);
    Ok((f.text()?, f.count(1)?))
}

/// A secret and, behind it, the ClientId of its application.
pub(crate) fn sealed<R: Columns>(row: &R) -> Result<SealedSecret, StoreError> {
    let client_id = Fields::new(row, "application", 11, 0).text()?;
    Ok(SealedSecret { client_id, row: secret(row)? })
}

pub(crate) fn token<R: Columns>(row: &R) -> Result<TokenRow, StoreError> {
    let mut f = Fields::new(row, "operator_token", 0, 0);
    Ok(TokenRow {
        token_id: f.text()?,
        name: f.text()?,
        digest: f.bytes()?,
        role: f.word(words::role)?,
        created_at: f.millis()?,
        expires_at: f.opt_millis()?,
        revoked_at: f.opt_millis()?,
        last_used_at: f.opt_millis()?,
    })
}

/// A version and where the next columns begin; none where an outer join found no row.
pub(crate) fn rule<R: Columns>(row: &R, first: usize) -> Result<(Option<RuleVersion>, usize), StoreError> {
    const COLUMNS: usize = 10;
    let mut f = Fields::new(row, "fee_rule", first, first);
    if f.is_missing() {
        return Ok((None, first + COLUMNS));
    }
    f.int()?;
    let (version_no, config_id, previous) = (f.count(1)?, f.sorted_id()?, f.opt_sorted_id()?);
    let base_version_no = f.opt_int()?;
    let (r, fixed) = (f.decimal()?, f.amount()?);
    let markup = Markup::new(r, fixed.to_decimal()).map_err(|_| f.corrupt())?;
    let (effective_at, due_at, created_at) = (f.millis()?, f.opt_millis()?, f.millis()?);
    if (version_no == 1) != previous.is_none() || base_version_no.is_some_and(|b| !(1..version_no).contains(&b)) {
        return Err(f.corrupt());
    }
    let version =
        RuleVersion { version_no, config_id, previous, base_version_no, markup, effective_at, due_at, created_at };
    Ok((Some(version), f.next()))
}

/// How many columns [`convert_order`] reads.
pub(crate) const CONVERT_ORDER_COLUMNS: usize = 11;

pub(crate) fn convert_order<R: Columns>(row: &R, first: usize) -> Result<ConvertOrder, StoreError> {
    let mut f = Fields::new(row, "convert_order", first, first);
    Ok(ConvertOrder {
        order_id: f.int().and_then(|no| OrderId::new(no).ok_or_else(|| f.corrupt()))?,
        user_id: f.int()?,
        sell_currency: f.currency()?,
        buy_currency: f.currency()?,
        sell_amount: f.amount()?,
        buy_amount: f.amount()?,
        status: f.int().and_then(|code| ConvertStatus::from_code(code).ok_or_else(|| f.corrupt()))?,
        rate: f.decimal()?,
        quote_id: f.text()?,
        created_at: f.millis()?,
        revision: f.count(1)?,
    })
}

/// How many columns [`event`] reads.
pub(crate) const EVENT_COLUMNS: usize = 18;

/// An event with its delivery's columns after its own.
pub(crate) fn event<R: Columns>(row: &R) -> Result<EventRow, StoreError> {
    let mut f = Fields::new(row, "event", 0, 1);
    let tenant = TenantNo(f.int()?);
    let mut event = EventRow {
        no: EventNo(f.int()?),
        tenant,
        application: ApplicationNo(f.int()?),
        client_id: f.text()?,
        event_id: f.sorted_id()?,
        seq: f.count(1)?,
        sequence: f.count(1)?,
        biz_type: f.text()?,
        biz_id: f.text()?,
        biz_status: f.text()?,
        data: f.text()?,
        body: f.blob()?.to_vec(),
        created_at: f.millis()?,
        state: DeliveryState::Held,
        attempts: 0,
        due_at: None,
        behind: None,
        by_hand: false,
    };
    let mut f = Fields::new(row, "delivery", f.next(), 1);
    event.state = f.word(DeliveryState::from_name)?;
    event.attempts = f.count(0)?;
    event.due_at = f.opt_millis()?;
    event.behind = f.opt_int()?.map(EventNo);
    event.by_hand = f.flag()?;
    if (event.state == DeliveryState::Pending) != event.due_at.is_some() {
        return Err(f.corrupt());
    }
    Ok(event)
}

pub(crate) fn owed<R: Columns>(row: &R) -> Result<OwedRow, StoreError> {
    let mut f = Fields::new(row, "delivery", 0, 1);
    Ok(OwedRow { tenant: TenantNo(f.int()?), application: ApplicationNo(f.int()?), due_at: f.millis()? })
}

pub(crate) fn turning<R: Columns>(row: &R) -> Result<TurningRow, StoreError> {
    let mut f = Fields::new(row, "delivery_turn", 0, 1);
    Ok(TurningRow {
        tenant: TenantNo(f.int()?),
        application: ApplicationNo(f.int()?),
        client_id: f.text()?,
        due_at: f.millis()?,
    })
}

pub(crate) fn attempt<R: Columns>(row: &R) -> Result<AttemptRow, StoreError> {
    let mut f = Fields::new(row, "attempt", 0, 0);
    Ok(AttemptRow {
        event: EventNo(f.int()?),
        attempt: f.count(1)?,
        at: f.millis()?,
        outcome: f.word(Outcome::from_name)?,
        http_status: f.opt_small()?,
        duration_ms: f.int()?,
        address: f.opt_text()?,
        detail: f.text()?,
        fence: Fence(f.count(0)?),
        phases: Phases {
            dns_us: f.opt_micros()?,
            connect_us: f.opt_micros()?,
            tls_us: f.opt_micros()?,
            first_byte_us: f.opt_micros()?,
            total_us: f.opt_micros()?,
            reused: f.opt_flag()?,
        },
    })
}

pub(crate) fn attempt_bytes<R: Columns>(row: &R) -> Result<AttemptBytes, StoreError> {
    let mut f = Fields::new(row, "attempt_bytes", 1, 0);
    Ok(AttemptBytes {
        sent_head: f.blob()?.to_vec(),
        answer_head: f.blob()?.to_vec(),
        answer_body: f.blob()?.to_vec(),
        answer_length: f.count(0)?,
        is_cut: f.flag()?,
    })
}

pub(crate) fn old_bytes<R: Columns>(row: &R) -> Result<OldBytes, StoreError> {
    let mut f = Fields::new(row, "attempt_bytes", 0, 0);
    Ok(OldBytes { tenant: TenantNo(f.int()?), rows: f.count(0)?, bytes: f.count(0)? })
}

pub(crate) fn old_events<R: Columns>(row: &R) -> Result<OldEvents, StoreError> {
    let mut f = Fields::new(row, "event", 0, 1);
    Ok(OldEvents {
        tenant: TenantNo(f.int()?),
        application: ApplicationNo(f.int()?),
        events: f.count(0)?,
        held: f.count(0)?,
        attempts: f.count(0)?,
        bytes: f.count(0)?,
    })
}

pub(crate) fn remembered<R: Columns>(row: &R) -> Result<IdempotencyRow, StoreError> {
    let mut f = Fields::new(row, "idempotency", 0, 1);
    Ok(IdempotencyRow {
        scope: f.text()?,
        key: f.text()?,
        body_digest: f.bytes()?,
        status: f.small()?,
        answer: f.text()?,
        created_at: f.millis()?,
    })
}

pub(crate) fn audit<R: Columns>(row: &R) -> Result<AuditRow, StoreError> {
    audit_line(&mut Fields::new(row, "audit", 0, 1))
}

fn audit_line<R: Columns>(f: &mut Fields<'_, R>) -> Result<AuditRow, StoreError> {
    let tenant = words::audit_tenant(f.count(0)?);
    Ok(AuditRow {
        no: f.count(1)?,
        tenant,
        at: f.millis()?,
        actor: f.text()?,
        source: f.text()?,
        action: f.text()?,
        subject: f.text()?,
        before: f.text()?,
        after: f.text()?,
        request_id: f.text()?,
    })
}

/// A line and its link, behind the two numbers of its place. One that cannot be read is named by tenant and number.
pub(crate) fn chain_line<R: Columns>(row: &R) -> Result<ChainLine, StoreError> {
    let read = || {
        let mut f = Fields::new(row, "audit", 2, 3);
        let (line, link) = (audit_line(&mut f)?, f.opt_bytes()?);
        let mut place = Fields::new(row, "audit", 0, 1);
        Ok(ChainLine { place: ChainPlace(place.int()?, place.int()?), row: line, link })
    };
    let name = |at| row.name(at).unwrap_or_else(|| "?".to_owned());
    read().map_err(|_: StoreError| StoreError::Corrupt { table: "audit", row: format!("{}/{}", name(2), name(3)) })
}

/// The end of a tenant's chain.
pub(crate) fn chain_head<R: Columns>(row: &R) -> Result<ChainHead, StoreError> {
    let mut f = Fields::new(row, "audit_head", 0, 0);
    Ok(ChainHead { tenant: words::audit_tenant(f.count(0)?), no: f.count(1)?, link: f.opt_bytes()? })
}
