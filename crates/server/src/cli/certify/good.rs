//! The good callback: whether it is taken, and where it is not, what the receiver seems to do wrong.

use std::time::Duration;

use tokio::time::sleep;

use super::super::courier::{Courier, Reaction};
use super::catalogue::GOOD;
use super::patience::in_the_end;
use super::{Finding, Verdict, mistakes};

/// The server's pause between the first attempt and the second, by the shipped schedule.
const SECOND_AFTER: Duration = Duration::from_secs(5);

/// What became of it.
pub(super) enum Good {
    /// It was taken, after so long.
    Taken(Finding, Duration),
    /// It was answered otherwise: the other checks mean nothing.
    NotTaken(Finding),
    /// There was no answer, for this reason.
    Unanswered(Finding, String),
}

pub(super) async fn found(courier: &Courier, secret: &str) -> Good {
    let first = in_the_end(courier, || courier.good()).await;
    let finding = GOOD.must_take(&first);
    match &first {
        Reaction::Silent(why) | Reaction::Late(why) | Reaction::Unreached(why) => {
            Good::Unanswered(finding, why.clone())
        }
        // Not even a good one, however often: nobody can be paid by it.
        Reaction::Busy { .. } => Good::NotTaken(GOOD.found(Verdict::Fail, first.told())),
        Reaction::Taken { .. } => match first.delivered_after() {
            Some(took) => Good::Taken(finding, took),
            None => Good::NotTaken(finding),
        },
        Reaction::NotTaken(_) => again(courier, secret, &first).await,
    }
}

/// As the server would, who sends it again: a receiver may not have been awake.
async fn again(courier: &Courier, secret: &str, first: &Reaction) -> Good {
    sleep(SECOND_AFTER).await;
    let second = in_the_end(courier, || courier.good()).await;
    let came = format!("the first {}; the second {}", first.told(), second.told());
    if let Some(took) = second.delivered_after() {
        return Good::Taken(GOOD.found(Verdict::Advice, came), took);
    }
    let mistake = mistakes::look_for(courier, secret).await;
    // Whoever takes good ones by now has taken the spoiled one for another reason, or not for what spoils it.
    let third = in_the_end(courier, || courier.good()).await;
    if let Some(took) = third.delivered_after() {
        return Good::Taken(GOOD.found(Verdict::Advice, format!("{came}; a later one {}", third.told())), took);
    }
    Good::NotTaken(Finding { mistake, ..GOOD.must_take(first) })
}
