//! A receiver may answer 429 or 503 to what it cannot judge now. It is asked again, as the server would, before anything is said of it: certify
//! sends more in a second than a merchant gets on most days, and what is put off by a limit is no refusal of a forgery.

use std::time::Duration;

use tokio::time::sleep;

use super::super::courier::{Courier, Letter, Reaction};

/// How often it is asked in all.
const TRIES: usize = 3;
/// The pause before the next where it names none; and the shortest and the longest that it is given.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Brings it until it is judged, or has been put off so often.
pub(super) async fn until_judged(mut bring: impl AsyncFnMut() -> Reaction) -> Reaction {
    let mut reaction = bring().await;
    for _ in 1..TRIES {
        let Reaction::Busy { retry_after, .. } = &reaction else { break };
        sleep(retry_after.unwrap_or(PAUSE).clamp(PAUSE_MIN, PAUSE_MAX)).await;
        reaction = bring().await;
    }
    reaction
}

/// Made anew each time, since the receiver may know the nonce of what it has put off.
pub(super) async fn in_the_end(courier: &Courier, make: impl Fn() -> Letter) -> Reaction {
    until_judged(async || courier.bring(&make()).await).await
}

/// The same, and the letter that was judged.
pub(super) async fn judged_letter(courier: &Courier, make: impl Fn() -> Letter) -> (Letter, Reaction) {
    let mut last = None;
    let reaction = until_judged(async || {
        let letter = last.insert(make());
        courier.bring(letter).await
    })
    .await;
    (last.unwrap_or_else(make), reaction)
}
