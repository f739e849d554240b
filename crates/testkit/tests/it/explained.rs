//! What operators can ask of a whole server: why a request was refused, whether the audit log holds, which master key seals.

use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::testing::Tampering;
use countersign_testkit::backing::StoreKind;
use countersign_testkit::operator::OperatorAccess;
use countersign_testkit::wire::{Answer, fresh_nonce};
use countersign_testkit::world::World;
use serde_json::{Value, json};

/// What the operator is told of a request.
pub async fn why(world: &World, answer: &Answer) -> Value {
    let id = answer.header("X-Service-Request-Id").expect("every answer has one");
    let explained = world.access.call("GET", &format!("/operator/v1/requests/{id}"), None).await.expect("answers");
    assert_eq!(explained.status, 200, "{}", explained.json());
    explained.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reasons_that_look_alike_outside_are_told_to_the_operator() {
    let world = World::start().await.expect("starts");
    let signer = world.access.institution("bank", 1, None).await.expect("is made");
    let order = world.access.convert_order("bank").await.expect("is made");
    let target = format!("/v1/pay/convert/order?orderId={order}");
    let name = "X-Service-Certificate-ClientId";

    let unknown =
        world.send(&world.draft(&signer, "GET", &target, "").with(name, "app_nobody")).await.expect("answers");
    let wrong = world.draft(&signer, "GET", &target, "").with("X-Service-Signature", &"0".repeat(128));
    let wrong = world.send(&wrong).await.expect("answers");
    let draft = world.draft(&signer, "GET", &target, "");
    let first = world.send(&draft).await.expect("answers");
    assert_eq!(first.code(), "000000");
    let again = world.send(&draft).await.expect("answers");
    let path = format!("/applications/{}", signer.client_id);
    world.access.provision("PATCH", &path, json!({"enabled": false})).await.expect("is disabled");
    let disabled = world.send(&world.draft(&signer, "GET", &target, "")).await.expect("answers");

    for (answer, code, reason) in [
        (&unknown, "400002", "unknown_client"),
        (&wrong, "400002", "wrong_signature"),
        (&disabled, "400002", "disabled"),
        (&again, "400021", ""),
    ] {
        assert_eq!(answer.code(), code);
        let explained = why(&world, answer).await;
        assert_eq!(explained["line"]["reason"].as_str().unwrap_or_default(), reason, "{explained}");
        assert!(explained["line"]["drift_ms"].is_i64(), "{explained}");
    }
    let stamped = why(&world, &again).await["line"]["nonce_first_stamped"].as_i64().expect("the first use is known");
    assert_eq!(
        draft.headers.iter().find(|(name, _)| name.ends_with("Timestamp")).expect("signed").1,
        stamped.to_string()
    );
    // Outside they differ in nothing but the id.
    for other in [&wrong, &disabled] {
        assert_eq!(other.body, unknown.body);
    }
    let enable = async |id: &str, on: bool| {
        let path = format!("/merchants/{id}");
        world.access.provision("PATCH", &path, json!({ "enabled": on })).await.expect("is changed");
    };
    let sub = world.access.application("bank-1", None).await.expect("is made");
    for (id, reason, remedy) in [
        ("bank-1", "merchant_disabled", "merchant update bank-1 --enabled true"),
        ("bank", "institution_disabled", "institution update bank --enabled true"),
    ] {
        enable(id, false).await;
        let answer = world.send(&world.draft(&sub, "GET", &target, "")).await.expect("answers");
        assert_eq!(answer.body, unknown.body, "outside it is one answer");
        let explained = why(&world, &answer).await;
        assert_eq!(explained["line"]["reason"], reason, "{explained}");
        assert!(explained["why"].as_str().is_some_and(|why| why.contains(remedy)), "{explained}");
        enable(id, true).await;
    }
    let nobody = world.access.call("GET", "/operator/v1/requests/none", None).await.expect("answers");
    assert_eq!(nobody.status, 404);
    let id = first.header("X-Service-Request-Id").expect("there").to_owned();
    let accepted = world.access.call("GET", &format!("/operator/v1/requests/{id}"), None).await.expect("answers");
    assert_eq!(accepted.status, 404, "only refusals are kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_that_followed_a_clock_that_was_ahead_answer_and_explanation_say_until_when() {
    const WEEK_MS: i64 = 7 * 86_400_000;
    let world = World::start_on(StoreKind::Sqlite, |_| {}).await.expect("starts");
    let signer = world.access.institution("bank", 1, None).await.expect("is made");
    let send =
        async |world: &World| world.send(&world.draft(&signer, "GET", "/v1/pay/events", "")).await.expect("answers");
    world.clock.advance_ms(WEEK_MS);
    assert_eq!(send(&world).await.code(), "000000");
    world.clock.advance_ms(-WEEK_MS);
    assert_eq!(send(&world).await.code(), "000000");
    let crash = Tampering::Crash(UnixMillis(0));
    let world = world.restart_after(|data| crash.of_file(&data.join("countersign.db"))).await.expect("starts again");
    let refused = send(&world).await;
    assert_eq!((refused.status, &*refused.code()), (503, "300503"), "{}", refused.json());
    let explained = why(&world, &refused).await;
    let through = explained["line"]["refused_through"].as_i64().expect("the line says until when");
    assert!((through - world.clock.now().0 - WEEK_MS).abs() < 60_000, "{explained}");
    let through = rfc3339(UnixMillis(through));
    assert!(explained["why"].as_str().is_some_and(|why| why.contains(&through)), "{explained}");
    assert!(refused.json()["errorMessage"].as_str().is_some_and(|told| told.contains(&through)), "{}", refused.json());
    world.clock.advance_ms(WEEK_MS + 10_000);
    assert_eq!(send(&world).await.code(), "000000", "its time has come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_nobody_may_be_acted_for_is_told_to_the_operator() {
    let world = World::start().await.expect("starts");
    let bank = world.access.institution("bank", 2, None).await.expect("is made");
    world.access.institution("other", 1, None).await.expect("is made");
    let sub = world.access.application("bank-1", None).await.expect("is made");
    world.access.provision("PATCH", "/merchants/bank-2", json!({"enabled": false})).await.expect("is disabled");
    let mut bodies = Vec::new();
    for (signer, named, reason, words) in [
        (&bank, "nobody", "on_behalf_of_unknown", "is nobody's merchant_id"),
        (&bank, "other-1", "on_behalf_of_foreign", "no sub-account of bank"),
        (&bank, "bank", "on_behalf_of_foreign", "no sub-account of bank"),
        (&bank, "bank-2", "on_behalf_of_disabled", "sub-account update bank-2 --enabled true"),
        (&sub, "bank-1", "acts_for_itself_alone", "only an institution's own key"),
    ] {
        let draft = world.draft(signer, "POST", "/v1/pay/order/query", "{}").with("X-Service-On-Behalf-Of", named);
        let answer = world.send(&draft).await.expect("answers");
        assert_eq!((answer.status, answer.code().as_str()), (403, "400203"));
        let explained = why(&world, &answer).await;
        assert_eq!(explained["line"]["reason"], reason, "{explained}");
        assert!(explained["why"].as_str().is_some_and(|why| why.contains(words)), "{explained}");
        bodies.push(answer.json()["errorMessage"].as_str().unwrap_or_default().to_owned());
    }
    assert!(bodies[..4].iter().all(|body| *body == bodies[0]), "outside it is one answer: {bodies:?}");
    assert!(bodies[0].ends_with("institution that is not disabled"), "{bodies:?}");
    assert!(bodies[4].starts_with("header X-Service-On-Behalf-Of: is for keys of an institution itself"), "{bodies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_caller_was_told_is_told_to_the_operator_but_no_secret_in_it() {
    let world = World::start().await.expect("starts");
    let bank = world.access.institution("bank", 1, None).await.expect("is made");
    let told = async |body: &str| {
        let draft = world.draft(&bank, "POST", "/rate/commission_rule", body);
        let answer = world.send(&draft).await.expect("answers");
        (answer.json()["errorMessage"].as_str().expect("a text").to_owned(), why(&world, &answer).await)
    };
    let (sentence, explained) = told(r#"{"sub_merchant_id":"bank-1","r_markup":"0.3"}"#).await;
    assert_eq!(sentence, "field r_markup: must be a JSON number");
    assert_eq!(explained["line"]["error_message"], sentence);
    assert_eq!(
        explained["why"],
        format!("It was refused with 400001, and told: {sentence}. Its timestamp was 0 ms behind the server's time.")
    );
    let (_, explained) = told(r#"{"sk_live_0815":1,"sk_live_0815":2}"#).await;
    assert_eq!(explained["line"]["error_message"], "field sk_(withheld)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_that_has_no_form_of_one_and_a_raised_tolerance_are_told_by_name() {
    let world = World::start().await.expect("starts");
    let bank = world.access.institution("bank", 0, None).await.expect("is made");
    let target = "/v1/pay/events";
    for signature in ["zz".to_owned(), "z".repeat(128), format!("{}--", "_".repeat(86))] {
        let draft = world.draft(&bank, "GET", target, "").with("X-Service-Signature", &signature);
        let answer = world.send(&draft).await.expect("answers");
        assert_eq!(answer.code(), "400002");
        let explained = why(&world, &answer).await;
        assert_eq!(explained["line"]["reason"], "unreadable_signature", "{explained}");
        assert!(explained["why"].as_str().is_some_and(|why| why.contains("neither 128 hex digits nor 88")));
    }
    let path = format!("/applications/{}", bank.client_id);
    let set = async |ms: u32| {
        world.access.provision("PATCH", &path, json!({ "timestamp_tolerance_ms": ms })).await.expect("is set");
    };
    let late = world.clock.now().0 - 5_000;
    set(1_000).await;
    let lower = world.send(&bank.draft_at("GET", target, b"", late, &fresh_nonce())).await.expect("answers");
    set(20_000).await;
    let raised = world.send(&bank.draft_at("GET", target, b"", late, &fresh_nonce())).await.expect("answers");
    for (answer, reason, said) in [
        (&lower, "own_tolerance", "at most 1000 ms are allowed, so set the clock"),
        (&raised, "tolerance_raised", "1000 ms at most are allowed, as before: sign anew with a later one"),
    ] {
        assert_eq!(answer.code(), "400003");
        assert!(answer.json()["errorMessage"].as_str().is_some_and(|s| s.contains(said)), "{:?}", answer.json());
        assert_eq!(why(&world, answer).await["line"]["reason"], reason);
    }
    assert!(why(&world, &raised).await["why"].as_str().is_some_and(|why| why.contains("was raised after")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_holds_is_exported_whole_and_against_heads_that_were_kept() {
    let world = World::start().await.expect("starts");
    world.access.institution("bank", 2, None).await.expect("is made");
    let get = async |path: &str| {
        world.access.call("GET", &format!("/operator/v1{path}"), None).await.expect("answers").json()
    };
    let heads = get("/audit/heads").await["items"].clone();
    assert_eq!(heads.as_array().expect("heads").len(), 2, "the system's and the institution's: {heads}");
    assert_eq!((&heads[0]["merchant_id"], &heads[1]["merchant_id"]), (&Value::Null, &json!("bank")));
    let lines = get("/audit/lines?limit=500").await["items"].clone();
    let lines = lines.as_array().expect("lines");
    assert!(lines.iter().all(|line| line["link"].as_str().is_some_and(|link| link.len() == 64)), "{lines:?}");
    let last = lines.iter().filter(|line| line["merchant_id"] == "bank").max_by_key(|line| line["no"].as_i64());
    assert_eq!(last.expect("there")["link"], heads[1]["link"]);

    let verify = async |body: Value| world.access.provision("POST", "/audit/verify", body).await.expect("answers");
    let holds = verify(json!({ "heads": heads })).await;
    assert_eq!((&holds["holds"], holds["lines"].as_u64()), (&json!(true), Some(lines.len() as u64)));
    assert_eq!((&holds["faults"], &holds["next"]), (&json!([]), &Value::Null));
    assert_eq!(verify(json!({ "heads": null })).await["holds"], true, "null is none");
    assert_eq!(verify(json!({ "heads": [{"merchant_id": null, "no": i64::MIN, "link": null}] })).await["holds"], false);

    // The same in many calls: heads page by page, then a line at a time.
    let more = verify(json!({ "heads": [heads[0]], "more_heads": true, "limit": 1 })).await;
    assert_eq!((&more["holds"], &more["lines"], &more["fault"]), (&Value::Null, &json!(0), &Value::Null));
    let id = more["next"].as_str().expect("it goes on").to_owned();
    let mut answer = verify(json!({ "heads": [heads[1]], "after": id, "limit": 1 })).await;
    let mut calls = 1;
    // A call that is refused leaves the walk where it was.
    let late = json!({ "heads": [heads[1]], "after": id });
    let refused = world.access.call("POST", "/operator/v1/audit/verify", Some(late)).await.expect("answers");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (400, Some("400001")), "{}", refused.json());
    while answer["next"].is_string() {
        assert_eq!((&answer["holds"], &answer["lines"]), (&Value::Null, &json!(calls)));
        answer = verify(json!({ "after": id, "limit": 1 })).await;
        calls += 1;
    }
    assert_eq!((&answer["holds"], answer["lines"].as_u64()), (&json!(true), Some(lines.len() as u64)));
    assert!(calls >= lines.len(), "{calls} calls for {} lines", lines.len());
    let body = json!({ "after": id });
    let gone = world.access.call("POST", "/operator/v1/audit/verify", Some(body)).await.expect("answers");
    assert_eq!((gone.status, gone.json()["code"].as_str()), (400, Some("400001")), "{}", gone.json());

    let mut more = heads.clone();
    more[1]["no"] = json!(99);
    let cut = verify(json!({ "heads": more })).await;
    assert_eq!((&cut["holds"], &cut["fault"]["merchant_id"]), (&json!(false), &json!("bank")), "{cut}");
    let mut other = heads.clone();
    other[1]["link"] = json!("00".repeat(32));
    let changed = verify(json!({ "heads": other })).await;
    assert_eq!((&changed["holds"], &changed["fault"]["no"]), (&json!(false), &heads[1]["no"]), "{changed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_has_two_walks_over_the_audit_log_and_others_find_a_place() {
    let world = World::start().await.expect("starts");
    world.access.institution("bank", 1, None).await.expect("is made");
    let made =
        world.access.provision("POST", "/tokens", json!({"name": "V", "role": "viewer"})).await.expect("answers");
    let viewer = OperatorAccess::new(world.access.address, made["token"].as_str().expect("a token").to_owned());
    let verify = async |body: Value| {
        let answer = viewer.call("POST", "/operator/v1/audit/verify", Some(body)).await.expect("answers");
        let told = answer.json()["detail"].as_str().is_some_and(|detail| detail.ends_with(" in 40 seconds"));
        assert_eq!(told, answer.header("retry-after") == Some("40"), "{}", answer.head);
        (answer.status, answer.json())
    };
    let (status, first) = verify(json!({"limit": 1})).await;
    assert_eq!((status, first["next"].is_string()), (200, true), "{first}");
    assert_eq!(verify(json!({"limit": 1})).await.0, 200, "whoever broke one off may begin again");
    for _ in 0..4 {
        let (status, refused) = verify(json!({"limit": 1})).await;
        let detail = refused["detail"].as_str().unwrap_or_default();
        assert!(
            status == 503 && detail.starts_with("2 walks of this token over the audit log are under way"),
            "{refused}"
        );
    }
    let whole = world.access.provision("POST", "/audit/verify", json!({})).await.expect("somebody else finds a place");
    assert_eq!(whole["holds"], true, "{whole}");
    // Its own walks are there as before, and when it is at its end there is room for another.
    assert_eq!(verify(json!({"after": first["next"]})).await.1["holds"], true);
    assert_eq!(verify(json!({"limit": 1})).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewrap_without_another_key_changes_nothing_and_says_so() {
    let world = World::start().await.expect("starts");
    world.access.institution("bank", 0, None).await.expect("is made");
    let shown = world.access.call("GET", "/operator/v1/master-key", None).await.expect("answers").json();
    assert_eq!((&shown["all_rewrapped"], &shown["previous_key_id"]), (&json!(true), &Value::Null));
    assert_eq!(shown["key_id"], shown["sealing_key_id"]);
    let done = world.access.provision("POST", "/master-key/rewrap", json!({})).await.expect("answers");
    assert_eq!((&done["done"], &done["rewrapped"], &done["unreadable"]), (&json!(true), &json!(0), &json!([])));
    let delivery = world.access.call("GET", "/operator/v1/delivery", None).await.expect("answers").json();
    assert_eq!((&delivery["held"], &delivery["held_since"]), (&json!(false), &Value::Null));
}
