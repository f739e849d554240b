//! Lists of events for operators: along which index they are walked, and where a look ends.
//!
//! A page is two statements: where the look for it ends, unless the index leads to what is meant and to nothing else; and what is found before
//! that. What is not asked for is not in them, so that the plan fits.

use countersign_domain::delivery::DeliveryState;

use crate::conditions;
use crate::contract::{EventFilter, EventRow, StoreError};
use crate::payment_listing::{StatementEnd, Value};
use crate::read::{self, Columns, EVENT_COLUMNS, Fields};

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// At most as many as were asked for. The state of each is as it stands: what is open is held or pending by its application as it is now.
    pub events: Vec<EventRow>,
    /// Behind which event the next page begins; none: there is nothing more. A page may hold fewer events than asked for, or none, and yet
    /// not be the last one: so many are looked at and no more.
    pub next: Option<i64>,
}

/// What is walked over, from the newest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// All events, by number.
    All,
    /// All deliveries, by number.
    Deliveries,
    /// The events of a business id, by number.
    Business,
    /// An application's events, by `seq`: numbers are of the clock and chance.
    Own,
    /// What is dead, by number.
    Dead,
    /// What is dead of an application, by number.
    OwnDead,
}

impl EventFilter {
    /// The walk that looks at the fewest.
    pub(crate) const fn walk(&self) -> Walk {
        let is_dead = matches!(self.state, Some(DeliveryState::Dead));
        match (self.biz_id.is_some(), self.client_id.is_some(), self.state.is_some()) {
            (true, _, _) => Walk::Business,
            (false, true, _) if is_dead => Walk::OwnDead,
            (false, true, _) => Walk::Own,
            (false, false, true) if is_dead => Walk::Dead,
            (false, false, true) => Walk::Deliveries,
            (false, false, false) => Walk::All,
        }
    }

    /// Whether the walk leads to others than those that are meant.
    pub(crate) const fn is_bounded(&self) -> bool {
        match self.walk() {
            Walk::All | Walk::Dead | Walk::OwnDead => false,
            Walk::Deliveries => true,
            Walk::Own => self.state.is_some(),
            Walk::Business => self.client_id.is_some() || self.state.is_some(),
        }
    }

    /// The page of these events, in any order: what the model answers.
    pub(crate) fn page<'e>(
        &self,
        events: impl Iterator<Item = &'e EventRow>,
        stands: impl Fn(&EventRow) -> DeliveryState,
        (after, limit): (Option<i64>, u32),
        looked_max: u32,
    ) -> EventPage {
        let walk = self.walk();
        let by_seq = walk == Walk::Own;
        let place = |event: &EventRow| if by_seq { event.seq } else { event.no.0 };
        let is_own = |event: &&EventRow| self.client_id.as_ref().is_none_or(|id| event.client_id == *id);
        let is_led_to = |event: &&EventRow| match walk {
            Walk::All | Walk::Deliveries => true,
            Walk::Business => self.biz_id.as_ref().is_none_or(|id| event.biz_id == *id),
            Walk::Own => is_own(event),
            Walk::Dead | Walk::OwnDead => is_own(event) && event.state == DeliveryState::Dead,
        };
        let mut led_to: Vec<&EventRow> = events.filter(is_led_to).collect();
        led_to.sort_by_key(|event| std::cmp::Reverse(place(event)));
        let before = match after {
            None => Some(i64::MAX),
            Some(no) if by_seq => led_to.iter().find(|event| event.no.0 == no).map(|event| event.seq),
            Some(no) => Some(no),
        };
        led_to.retain(|event| before.is_some_and(|before| place(event) < before));
        let looked_max = if self.is_bounded() { looked_max as usize } else { usize::MAX };
        let edge = led_to.get(looked_max.saturating_sub(1)).filter(|_| led_to.len() > looked_max).map(|e| e.no.0);
        let is_meant = |event: &&EventRow| is_own(event) && self.state.is_none_or(|wanted| stands(event) == wanted);
        let meant = led_to.iter().copied().take(looked_max).filter(is_meant);
        let as_it_stands = |event: &EventRow| EventRow { state: stands(event), ..event.clone() };
        page(meant.take(limit as usize + 1).map(as_it_stands).collect(), limit, edge)
    }
}

/// How a dialect walks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The beginning of the statement that finds the events.
    pub(crate) rows: &'static str,
    /// The beginning of the statement that finds where the page ends: it selects a number and a place.
    pub(crate) look: &'static str,
    /// The column that the walk follows.
    pub(crate) place: &'static str,
    /// Which events are walked over: a condition, in which `#` stands for the id of the business or the application. It may be empty.
    pub(crate) lead: &'static str,
    /// The lower end: a condition, in which `#` stands for a place.
    pub(crate) least: &'static str,
    /// The columns that `ORDER BY` names before the place, so that only one index gives this order. It may be empty.
    pub(crate) order: &'static str,
    /// What begins a parameter: `?` or `$`.
    pub(crate) sign: char,
}

/// The two statements of a page.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    filter: EventFilter,
    after: Option<i64>,
    way: Way,
}

impl Listing {
    pub(crate) const fn new(filter: EventFilter, after: Option<i64>, way: Way) -> Self {
        Self { filter, after, way }
    }

    /// The last event that is looked at and the one behind it; fewer: all are looked at.
    pub(crate) fn edge(&self, looked_max: u32) -> Option<StatementEnd> {
        if !self.filter.is_bounded() {
            return None;
        }
        let mut asked = self.led(self.way.look, None);
        self.close(&mut asked, " LIMIT 2 OFFSET #", i64::from(looked_max.saturating_sub(1)));
        Some(asked)
    }

    /// What is meant of what is looked at: one more than `limit`. `edge`: the place of the last one that is looked at.
    pub(crate) fn rows(&self, edge: Option<i64>, limit: u32) -> StatementEnd {
        let mut asked = self.led(self.way.rows, edge);
        let walk = self.filter.walk();
        let is_led_by_state = matches!(walk, Walk::Dead | Walk::OwnDead);
        if let Some(state) = self.filter.state.filter(|_| !is_led_by_state) {
            asked.0.push_str(conditions::stands_in(state));
        }
        if let (Walk::Business, Some(client_id)) = (walk, &self.filter.client_id) {
            self.also(&mut asked, " AND e.client_id = #", Value::Text(client_id.clone()));
        }
        self.close(&mut asked, " LIMIT #", i64::from(limit) + 1);
        asked
    }

    /// Whose events the index leads to.
    const fn key(&self) -> Option<&String> {
        match self.filter.walk() {
            Walk::All | Walk::Deliveries | Walk::Dead => None,
            Walk::Business => self.filter.biz_id.as_ref(),
            Walk::Own | Walk::OwnDead => self.filter.client_id.as_ref(),
        }
    }

    /// What the index leads to. A bound is there also where the walk begins at the newest: without it, another plan may seem as good.
    fn led(&self, begin: &str, edge: Option<i64>) -> StatementEnd {
        let mut asked = (begin.to_owned(), Vec::new());
        if let Some(key) = self.key() {
            self.also(&mut asked, self.way.lead, Value::Text(key.clone()));
        }
        if let Some(edge) = edge {
            self.also(&mut asked, self.way.least, Value::Int(edge));
        }
        asked.0.extend([" AND ", self.way.place, " < "]);
        match (self.filter.walk(), self.after, self.key()) {
            (Walk::Own, Some(after), Some(client_id)) => {
                // Behind an event that is gone there is nothing: an application's oldest events are forgotten first.
                self.also(&mut asked, "coalesce((SELECT b.seq FROM event b WHERE b.event_no = #", Value::Int(after));
                self.also(&mut asked, " AND b.client_id = #), 0)", Value::Text(client_id.clone()));
            }
            (_, after, _) => self.also(&mut asked, "#", Value::Int(after.unwrap_or(i64::MAX))),
        }
        asked
    }

    fn close(&self, asked: &mut StatementEnd, end: &str, value: i64) {
        asked.0.extend([" ORDER BY ", self.way.order, self.way.place, " DESC"]);
        self.also(asked, end, Value::Int(value));
    }

    /// Adds a text in which `#` stands for the value.
    fn also(&self, (sql, values): &mut StatementEnd, text: &str, value: Value) {
        values.push(value);
        sql.push_str(&text.replace('#', &format!("{}{}", self.way.sign, values.len())));
    }
}

/// Where a page ends, by the numbers and places that [`Listing::edge`] found: at the last event that may be looked at, if another event lies behind
/// it.
pub(crate) fn edge(found: &[(i64, i64)]) -> Option<(i64, i64)> {
    found.first().copied().filter(|_| found.len() > 1)
}

/// A listed event, behind whose columns stands whether its application's callbacks go out.
pub(crate) fn standing<R: Columns>(row: &R) -> Result<EventRow, StoreError> {
    let event = read::event(row)?;
    let goes_out = Fields::new(row, "delivery", EVENT_COLUMNS, 1).flag()?;
    Ok(EventRow { state: event.state.standing(goes_out), ..event })
}

/// The page of what was found, which is one event more than was asked for where there are more. `edge`: the last one that was looked at.
pub(crate) fn page(mut events: Vec<EventRow>, limit: u32, edge: Option<i64>) -> EventPage {
    let limit = limit as usize;
    let has_more = events.len() > limit;
    events.truncate(limit);
    let last = events.last().map(|last| last.no.0).filter(|_| has_more);
    EventPage { events, next: last.or(edge) }
}

/// Every filter there can be, for tests over their plans.
#[cfg(test)]
pub(crate) fn filters() -> Vec<EventFilter> {
    let states = || DeliveryState::ALL.into_iter().map(Some).chain([None]);
    let ids = |id: &str| [None, Some(id.to_owned())];
    let of = |client_id: Option<String>| {
        ids("b").into_iter().flat_map(move |biz_id| {
            let client_id = client_id.clone();
            states().map(move |state| EventFilter { client_id: client_id.clone(), biz_id: biz_id.clone(), state })
        })
    };
    ids("app_one").into_iter().flat_map(of).collect()
}
