use std::collections::VecDeque;

use cloud_api::CloudErrorKind;
use parking_lot::Mutex;
use serde::Deserialize;

use super::*;
use crate::Answer;

#[derive(Clone, Debug, PartialEq)]
struct Thing {
    phase: Phase,
    ours: bool,
    size: u8,
}

impl Kind for Thing {
    const NAME: &'static str = "thing";
    fn phase(&self) -> Phase {
        self.phase.clone()
    }
}

const fn thing(phase: Phase) -> Thing {
    Thing { phase, ours: true, size: 1 }
}

/// A cloud that shows one thing after the other, and keeps what it was asked.
#[derive(Default)]
struct Script {
    gets: Mutex<VecDeque<Option<Thing>>>,
    puts: Mutex<VecDeque<Result<Option<Thing>, Class>>>,
    asked: Mutex<Vec<&'static str>>,
    slept: Mutex<Duration>,
}

#[async_trait]
impl Clock for Script {
    fn now(&self) -> Duration {
        *self.slept.lock()
    }
    async fn sleep(&self, pause: Duration) {
        *self.slept.lock() += pause;
    }
}

#[async_trait]
impl Objects<Thing> for Script {
    type Address = String;
    type Body = u8;

    async fn get(&self, _: &String) -> Result<Option<Thing>, Failure> {
        self.asked.lock().push("get");
        Ok(self.gets.lock().pop_front().flatten())
    }
    async fn put(&self, _: &String, _: &u8) -> Result<Option<Thing>, Failure> {
        self.asked.lock().push("put");
        self.puts.lock().pop_front().unwrap_or(Ok(None)).map_err(|class| Failure::Refused {
            operation: "put".into(),
            status: 400,
            answer: Answer { class, code: String::new(), message: String::new() },
        })
    }
    async fn delete(&self, _: &String) -> Result<(), Failure> {
        self.asked.lock().push("delete");
        Ok(())
    }
    fn clock(&self) -> &dyn Clock {
        self
    }
}

type Put = Result<Option<Thing>, Class>;

async fn run(gets: Vec<Option<Thing>>, puts: Vec<Put>) -> (Result<Thing, CloudErrorKind>, String) {
    let script = Script { gets: Mutex::new(gets.into()), puts: Mutex::new(puts.into()), ..Script::default() };
    let fits = |thing: &Thing| match thing.size {
        1 => Fit::Yes,
        2 => Fit::Rewrite,
        _ => Fit::Never("is too large".into()),
    };
    let wanted = Wanted { body: &1, is_ours: &|thing: &Thing| thing.ours, fits: &fits };
    let outcome = ensure(&script, &"t".to_owned(), wanted).await.map_err(|err| err.kind);
    let asked = script.asked.lock().join(" ");
    (outcome, asked)
}

#[tokio::test]
async fn what_is_there_decides_what_is_asked_for() {
    let (ready, coming, going) = (thing(Phase::Ready), thing(Phase::Coming), thing(Phase::Going));
    let failed = thing(Phase::Failed("no room".into()));
    let cases = [
        (vec![Some(ready.clone())], vec![], "get"),
        (vec![None], vec![Ok(Some(ready.clone()))], "get put"),
        (vec![None, Some(ready.clone())], vec![Ok(None)], "get put get"),
        (vec![Some(coming.clone()), Some(coming.clone()), Some(ready.clone())], vec![], "get get get"),
        (vec![None, Some(ready.clone())], vec![Ok(Some(coming))], "get put get"),
        (vec![Some(going), None], vec![Ok(Some(ready.clone()))], "get get put"),
        (vec![Some(failed), None], vec![Ok(Some(ready.clone()))], "get delete get put"),
        (vec![Some(Thing { size: 2, ..ready.clone() })], vec![Ok(Some(ready.clone()))], "get put"),
        // The answer to the first request was lost.
        (vec![None, Some(ready.clone())], vec![Err(Class::Exists)], "get put get"),
    ];
    for (gets, puts, asked) in cases {
        assert_eq!(run(gets, puts).await, (Ok(ready.clone()), asked.to_owned()));
    }
}

#[tokio::test]
async fn what_is_not_ours_or_cannot_fit_is_refused_and_not_touched() {
    let theirs = Thing { ours: false, ..thing(Phase::Failed(String::new())) };
    let conflict = |asked: &str| (Err(CloudErrorKind::Conflict), asked.to_owned());
    assert_eq!(run(vec![Some(theirs.clone())], vec![]).await, conflict("get"));
    assert_eq!(run(vec![None, Some(theirs)], vec![Err(Class::Exists)]).await, conflict("get put get"));
    let large = Thing { size: 3, ..thing(Phase::Ready) };
    assert_eq!(run(vec![Some(large)], vec![]).await, conflict("get"));
    let refused = run(vec![None], vec![Err(Class::Invalid)]).await;
    assert_eq!(refused, (Err(CloudErrorKind::Invalid), "get put".to_owned()));
}

#[tokio::test]
async fn what_never_comes_is_given_up() {
    let (outcome, asked) = run(vec![], vec![]).await;
    assert_eq!(outcome, Err(CloudErrorKind::Unavailable));
    assert_eq!(asked.matches("put").count(), 4, "{asked}");
    let other = Thing { size: 2, ..thing(Phase::Ready) };
    let (outcome, asked) = run(vec![Some(other.clone()); 9], vec![]).await;
    assert_eq!(outcome, Err(CloudErrorKind::Unavailable));
    assert_eq!(asked.matches("put").count(), 4, "{asked}");
    // Something is always in the way: the cloud's own refusal is the answer, not that it was asked often.
    for there in [vec![], vec![Some(other); 9]] {
        let (outcome, asked) = run(there, vec![Err(Class::Exists); 4]).await;
        assert_eq!((outcome, asked.matches("put").count()), (Err(CloudErrorKind::Conflict), 4));
    }
}

/// Whoever has to mend it is told the cloud's reason, not only that there is nothing.
#[tokio::test]
async fn what_fails_every_time_is_given_up_with_its_reason() {
    let failed = || Ok(Some(thing(Phase::Failed("no room".into()))));
    let script = Script { puts: Mutex::new((0..4).map(|_| failed()).collect()), ..Script::default() };
    let wanted = Wanted { body: &1, is_ours: &|thing: &Thing| thing.ours, fits: &|_| Fit::Yes };
    let err = ensure(&script, &"t".to_owned(), wanted).await.unwrap_err();
    assert_eq!(
        (err.kind, err.message.as_str()),
        (CloudErrorKind::Unavailable, "the thing t failed: no room")
    );
}

#[tokio::test]
async fn only_what_is_ours_is_deleted() {
    for (there, asked) in [
        (None, "get"),
        (Some(thing(Phase::Ready)), "get delete get"),
        (Some(Thing { ours: false, ..thing(Phase::Ready) }), "get"),
    ] {
        let script = Script { gets: Mutex::new([there].into()), ..Script::default() };
        remove(&script, &"t".to_owned(), &|thing: &Thing| thing.ours).await.unwrap();
        assert_eq!(script.asked.lock().join(" "), asked);
    }
}

#[test]
fn a_missing_field_is_told_by_its_path() {
    #[derive(Debug, Deserialize)]
    struct Page {
        #[allow(dead_code, reason = "only its absence is looked at")]
        items: Vec<Item>,
    }
    #[derive(Debug, Deserialize)]
    struct Item {
        #[allow(dead_code, reason = "only its absence is looked at")]
        id: String,
    }
    let reply = |body: &str| Reply { status: 200, headers: Default::default(), body: body.to_owned().into() };
    let message = |body: &str| read_json::<Page>("list", &reply(body)).unwrap_err().to_string();
    assert!(message(r#"{"items":[{"id":"a"},{}]}"#).contains("items[1]: missing field `id`"));
    assert!(message(r#"{"items":[{"id":7}]}"#).contains("items[0].id: invalid type"));
    assert!(message("").contains("EOF"));
    assert!(read_json::<Page>("list", &reply(r#"{"items":[],"new":1}"#)).is_ok());
}
