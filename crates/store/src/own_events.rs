//! A page of an application's own events, bounded in bytes: whoever asks may be slow to take it, and many may ask at once.

use crate::contract::EventRow;

/// How many bytes the bodies and data of a page come to before the page ends: the event that passes this bound is the page's last.
pub const OWN_EVENTS_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A page that is read event by event.
#[derive(Debug, Default)]
pub(crate) struct OwnEventsPage {
    events: Vec<EventRow>,
    bytes: usize,
}

impl OwnEventsPage {
    /// The first of these, as far as a page goes.
    pub(crate) fn first(events: impl Iterator<Item = EventRow>) -> impl Iterator<Item = EventRow> {
        let mut page = Self::default();
        for event in events {
            if !page.has_room() {
                break;
            }
            page.push(event);
        }
        page.events().into_iter()
    }

    /// Whether another one belongs to it.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < OWN_EVENTS_BYTES_MAX
    }

    pub(crate) fn push(&mut self, event: EventRow) {
        self.bytes += event.body.len() + event.data.len();
        self.events.push(event);
    }

    pub(crate) fn events(self) -> Vec<EventRow> {
        self.events
    }
}
