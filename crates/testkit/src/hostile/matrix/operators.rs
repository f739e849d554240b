//! Every operator route with every kind of credential and every combination of the merchants' headers.

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::cast::{Cast, Victim};
use super::{Alike, Asker, Report};
use crate::dice::Dice;
use crate::wire::{Answer, Draft};
use crate::world::World;

/// What takes the role operator; every other write is for security, every other read for the viewer.
const DAILY: [(&str, &str); 13] = [
    ("POST", "/applications/{client_id}/callbacks/pause"),
    ("POST", "/applications/{client_id}/callbacks/resume"),
    ("POST", "/applications/{client_id}/callbacks/test"),
    ("POST", "/merchants/{merchant_id}/convert-orders"),
    ("PATCH", "/convert-orders/{order_id}"),
    ("PUT", "/rates/{pair}"),
    ("PATCH", "/payment-orders/{prepayId}"),
    ("POST", "/events"),
    ("POST", "/events/{event_id}/redeliver"),
    ("POST", "/events/redeliver"),
    ("POST", "/redeliveries/{redelivery_id}/stop"),
    ("GET", "/events/{event_id}/attempts/{attempt}"),
    ("GET", "/payment-orders/{prepayId}/evidence"),
];

/// What opens a door, or does not.
struct Credential {
    what: &'static str,
    /// 0: none of ours. 1 to 3: viewer, operator, security.
    rank: u8,
    headers: Vec<(String, String)>,
}

/// The rank that a route asks for.
fn needed(method: &str, path: &str) -> u8 {
    let under = path.strip_prefix(countersign::operator::BASE).unwrap_or(path);
    match method {
        _ if DAILY.contains(&(method, under)) => 2,
        "GET" => 1,
        // Reads, though it may take a while.
        "POST" if under == "/audit/verify" => 1,
        _ => 3,
    }
}

/// A path with its names filled in: each by what `of` has for it.
fn fill(path: &str, mut of: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let parts: Result<Vec<String>> = path
        .split('/')
        .map(|part| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => of(name),
            None => Ok(part.to_owned()),
        })
        .collect();
    Ok(parts?.join("/"))
}

/// A victim's id of this kind. A kind that is not here fails the run.
fn id(victim: &Victim, name: &str) -> Result<String> {
    Ok(match name {
        "merchant_id" | "sub_merchant_id" => &victim.merchant,
        "client_id" => &victim.client_id,
        "secret_id" => &victim.secret_id,
        "order_id" => &victim.order,
        "prepayId" => &victim.payment,
        "event_id" => &victim.event,
        "attempt" => return Ok("1".to_owned()),
        // Nobody in the cast has one: all three are not there.
        "redelivery_id" => return Ok("rdl_00000000000000000000000000".to_owned()),
        "pair" => return Ok("GT_USDT".to_owned()),
        "token_id" => &victim.token_id,
        "request_id" => &victim.request_id,
        _ => {
            bail!("the matrix does not know the name {{{name}}}: say in hostile/matrix/operators.rs what stands there")
        }
    }
    .clone())
}

/// An id of this kind that nothing has.
fn absent(name: &str) -> String {
    if name == "order_id" { "999999999999999999".to_owned() } else { format!("zq9q-{name}") }
}

/// All routes; whoever has no right to one knocks there without headers of merchants, and of all other cells one in `one_in` is tried.
pub(super) async fn run(
    world: &World,
    cast: &Cast,
    routes: &[(String, String)],
    dice: &mut Dice,
    one_in: usize,
) -> Result<Report> {
    let mut report = Report::default();
    let mut asker = Asker::new(world.access.address);
    let credentials = credentials(world, cast).await?;
    // Those with a right come last: they may break what others are tried on.
    for credential in &credentials {
        for (method, path) in routes {
            for noise in noise(cast) {
                let has_no_right = credential.rank < needed(method, path);
                let is_always_tried = has_no_right && noise.is_empty();
                if !(is_always_tried || dice.once_in(one_in)) {
                    continue;
                }
                doors(cast, &mut asker, credential, (method, path), &noise, &mut report).await?;
            }
        }
    }
    // The number of an attempt is nobody's: another house's is one's own.
    let is_mixed = |path: &str| path.matches('{').count() > 1 && !path.ends_with("/{attempt}");
    for (method, path) in routes.iter().filter(|(_, path)| is_mixed(path)) {
        mixed(world, cast, &mut asker, (method, path), &mut report).await?;
    }
    Ok(report)
}

/// Headers of merchants, which mean nothing here.
fn noise(cast: &Cast) -> Vec<Vec<(String, String)>> {
    let header = |name: &str, value: &str| (format!("X-Service-{name}"), value.to_owned());
    let mut all = vec![Vec::new()];
    for merchant in [&cast.houses[0].institution.merchant, &cast.houses[1].subs[0].merchant, &"zq9q-bank".to_owned()] {
        all.push(vec![header("MerchantId", merchant)]);
        all.push(vec![header("On-Behalf-Of", merchant)]);
        all.push(vec![header("MerchantId", &cast.houses[0].institution.merchant), header("On-Behalf-Of", merchant)]);
    }
    all
}

async fn credentials(world: &World, cast: &Cast) -> Result<Vec<Credential>> {
    let bearer = |text: &str| vec![("Authorization".to_owned(), format!("Bearer {text}"))];
    let none = |what, headers| Credential { what, rank: 0, headers };
    let key = &cast.keys[0];
    let mut all = vec![
        none("nothing", Vec::new()),
        none("nonsense", bearer("cso_nobody")),
        none("an empty token", bearer("")),
        none("a ClientId", bearer(&key.signer.client_id)),
        none("a merchant's signature", world.draft(&key.signer, "GET", "/", "").headers),
    ];
    let made = async |role: &str| -> Result<(String, String)> {
        let made = world.access.provision("POST", "/tokens", json!({"name": role, "role": role})).await?;
        let text = |name: &str| made[name].as_str().map(str::to_owned).context("a token");
        Ok((text("token_id")?, text("token")?))
    };
    let (token_id, revoked) = made("security").await?;
    world.access.call("DELETE", &format!("{}/tokens/{token_id}", countersign::operator::BASE), None).await?;
    all.push(none("a revoked token", bearer(&revoked)));
    for (rank, role) in [(1, "viewer"), (2, "operator"), (3, "security")] {
        all.push(Credential { what: role, rank, headers: bearer(&made(role).await?.1) });
    }
    Ok(all)
}

/// One route with one credential: the same answer for what is there, there for somebody else, and not there, unless it opens the door.
async fn doors(
    cast: &Cast,
    asker: &mut Asker,
    credential: &Credential,
    (method, path): (&str, &str),
    noise: &[(String, String)],
    report: &mut Report,
) -> Result<()> {
    let needed = needed(method, path);
    let mut first: Option<Alike> = None;
    let one = &cast.houses[0].victim;
    let other = &cast.houses[1].victim;
    let paths =
        [fill(path, |name| id(one, name))?, fill(path, |name| id(other, name))?, fill(path, |name| Ok(absent(name)))?];
    for target in paths {
        let answer = asker.ask(&draft(method, &target, [credential.headers.clone(), noise.to_vec()].concat())).await?;
        report.asked.1 += 1;
        let place = || format!("{method} {target} with {}, headers {noise:?}", credential.what);
        if credential.rank >= needed {
            if matches!(answer.status, 401 | 403) || answer.status >= 500 {
                report.fault(format!("{}: {} {}", place(), answer.status, answer.json()));
            }
            continue;
        }
        let wanted = if credential.rank == 0 { (401, "400801") } else { (403, "400802") };
        if (answer.status, answer.code().as_str()) != wanted {
            report.fault(format!("{}: {} {} in place of {wanted:?}", place(), answer.status, answer.json()));
        }
        let alike = Alike::of(&answer, &[]);
        match &first {
            None => first = Some(alike),
            Some(other) if *other != alike => report.fault(format!("{}: {alike:?} and {other:?}", place())),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Names of two houses in one path: what is asked for is not there.
async fn mixed(
    world: &World,
    cast: &Cast,
    asker: &mut Asker,
    (method, path): (&str, &str),
    report: &mut Report,
) -> Result<()> {
    let (one, other) = (&cast.houses[2].victim, &cast.houses[3].victim);
    let second = |house: &Victim, absent_id: bool| {
        let mut is_first = true;
        fill(path, |name| {
            if std::mem::take(&mut is_first) {
                return id(one, name);
            }
            if absent_id { Ok(absent(name)) } else { id(house, name) }
        })
    };
    let headers = world.access.draft(method, "", None).headers;
    let mut ask = async |target: String, last: String| -> Result<(Answer, Alike)> {
        let answer = asker.ask(&draft(method, &target, headers.clone())).await?;
        let alike = Alike::of(&answer, &[&last]);
        Ok((answer, alike))
    };
    let name = path.rsplit('{').next().and_then(|rest| rest.split('}').next()).unwrap_or_default();
    let (foreign, foreign_alike) = ask(second(other, false)?, id(other, name)?).await?;
    let (_, absent_alike) = ask(second(other, true)?, absent(name)).await?;
    report.asked.1 += 2;
    if foreign.status < 400 {
        report.fault(format!("{method} {path} across houses: {} {}", foreign.status, foreign.json()));
    }
    if foreign_alike != absent_alike {
        report.fault(format!("{method} {path} across houses: {foreign_alike:?} and {absent_alike:?}"));
    }
    Ok(())
}

fn draft(method: &str, target: &str, mut headers: Vec<(String, String)>) -> Draft {
    let body = if method == "GET" || method == "DELETE" { Vec::new() } else { b"{}".to_vec() };
    if !body.is_empty() {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    Draft { method: method.to_owned(), target: target.to_owned(), headers, body }
}
