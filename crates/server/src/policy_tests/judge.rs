//! One line of a test against an engine: every pair of those it names.

use std::collections::BTreeMap;

use model::{
    Open, Share,
    policy::policy_test::{Expectation, Expected},
};
use policy::{Engine, survey::TooManyPairs};
use wire::trestle::v1::ExplainRequest;

use crate::{
    explain::{Ends, Explainer, Question, answer, endpoint, words},
    pairs::{End, Pairs, chosen},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// An end is not there, or what decides is not known before the change is made.
    Undecided,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Undecided => "undecided",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Judged {
    pub outcome: Outcome,
    /// Why it is not passed.
    pub because: String,
    pub traffic: String,
    pub pairs: u64,
}

pub struct Judge {
    pub explainer: Explainer,
}

/// Those that a text names, or why it names nobody.
type Named = Result<Vec<End>, String>;

impl Judge {
    pub fn engine(&self) -> Engine {
        self.explainer.policy.ask(Clone::clone)
    }

    /// `now`: what is in force, where `engine` is only tried.
    pub fn judge(
        &self,
        engine: &Engine,
        now: Option<&Engine>,
        line: &Expectation,
    ) -> Result<Judged, TooManyPairs> {
        let question = match question(line) {
            Ok(question) => question,
            Err(why) => return Ok(undecided(String::new(), why)),
        };
        let traffic = question.name();
        let (from, to) = match (self.named(engine, &line.from), self.named(engine, &line.to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(why), _) | (_, Err(why)) => return Ok(undecided(traffic, why)),
        };
        let wanted = match line.expected() {
            Some(Expected::Allow) => Share::All,
            Some(Expected::Deny) => Share::None,
            None => return Ok(undecided(traffic, format!("{:?} is neither allow nor deny", line.expect))),
        };
        let pairs = Pairs::new(&from, &to);
        let survey = engine.survey(&pairs.parties);
        if let Some(unknown) = pairs.unknown(&survey) {
            return Ok(undecided(traffic, format!("{unknown} is not there")));
        }
        let (all, wrong) = pairs.count(&survey, |open| question.share(open) != wanted)?;
        if all == 0 {
            return Ok(undecided(traffic, format!("{} and {} are the same one", line.from, line.to)));
        }
        let judged = |outcome, because| Judged { outcome, because, traffic: traffic.clone(), pairs: all };
        if wrong > 0 {
            let example = pairs.example(&survey, |open| question.share(open) != wanted);
            let told = example.map(|(from, to, open)| self.told(engine, from, to, &open, &question));
            let more = if wrong > 1 { format!(" (and {} more pairs)", wrong - 1) } else { String::new() };
            let because = format!("expected {}, but {}{more}", line.expect, told.unwrap_or_default());
            return Ok(judged(Outcome::Failed, because));
        }
        if let Some(now) = now.filter(|_| wanted == Share::None)
            && let Some(resource) = pairs.undone(engine, now, &question)
        {
            let because = format!(
                "policies would not close it any more; whether the permit list of {resource} does is known when it is worked out"
            );
            return Ok(judged(Outcome::Undecided, because));
        }
        Ok(judged(Outcome::Passed, String::new()))
    }

    fn named(&self, engine: &Engine, text: &str) -> Named {
        if let Some((namespace, labels)) = selection(text) {
            let chosen = chosen(engine, namespace, &labels);
            return if chosen.is_empty() { Err(format!("nobody is {text}")) } else { Ok(chosen) };
        }
        let end = endpoint(text).map_err(|failure| failure.message)?;
        let ends = Ends::find(&self.explainer.orchestrator, [end.clone(), end]);
        let [party, _] = ends.parties().clone();
        Ok(vec![End { name: text.to_owned(), party }])
    }

    /// What is so between two, and what decides that.
    fn told(&self, engine: &Engine, from: &End, to: &End, open: &Open, question: &Question) -> String {
        let asked = [&from.party, &to.party].map(|party| party.endpoint.clone());
        let ends = Ends::find(&self.explainer.orchestrator, asked);
        let share = question.share(open);
        let mut told = format!("{} to {} {}: {}", from.name, to.name, question.name(), words::verdict(share));
        if share == Share::Some {
            told.push_str(&format!(" ({open})"));
        }
        if let Ok(response) = answer(engine, &ends, question, &self.explainer.hosts) {
            told.push_str(&format!("; {}", words::reasons(&response).join("; ")));
        }
        told
    }
}

fn undecided(traffic: String, because: String) -> Judged {
    Judged { outcome: Outcome::Undecided, because, traffic, pairs: 0 }
}

fn question(line: &Expectation) -> Result<Question, String> {
    let request = ExplainRequest {
        protocol: line.protocol.clone(),
        port: line.port.and_then(|port| u32::try_from(port).ok()),
        ..ExplainRequest::default()
    };
    Question::new(&request).map_err(|failure| failure.message)
}

/// `NAMESPACE/KEY=VALUE,KEY=VALUE`: all workloads of a namespace that have these labels.
fn selection(text: &str) -> Option<(&str, BTreeMap<&str, &str>)> {
    // Keys may have a slash too, after the first one.
    let (namespace, labels) = text.split_once('/')?;
    let labels: Option<_> = labels.split(',').map(|label| label.split_once('=')).collect();
    let labels: BTreeMap<&str, &str> = labels?;
    (!labels.keys().any(|key| key.is_empty())).then_some((namespace, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_a_namespace_are_told_from_names() {
        let (namespace, labels) = selection("shop/app=web,app.kubernetes.io/name=x").unwrap();
        assert_eq!((namespace, labels.len(), labels["app.kubernetes.io/name"]), ("shop", 2, "x"));
        for text in
            ["shop/web-1", "pod/shop/web-1", "10.0.0.1", "fd00::1", "default.aws.web", "node/n", "shop/=x"]
        {
            assert!(selection(text).is_none(), "{text}");
        }
    }
}
