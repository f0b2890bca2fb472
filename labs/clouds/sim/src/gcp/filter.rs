//! The `filter` of a list: `name = x`, `labels.a : *`, `name eq "regular.*expression"`, with `AND`, `OR`, `NOT` and parentheses.
//!
//! In: the text of a request. Out: whether an object passes, or a refusal. Terms side by side must all be true.

use regex::Regex;
use serde_json::Value;

use super::{Refusal, refuse};

#[derive(Debug)]
enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Not(Box<Filter>),
    /// A field is like an expression; mostly one that says how it begins.
    Like(String, Regex),
    Begins(String, String),
    Is(String, String),
    Has(String, String),
}

/// A filter that is not there lets everything pass.
#[derive(Debug)]
pub(super) struct Wanted(Option<Filter>);

impl Wanted {
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(Self(None)) };
        let words = words(text);
        let mut rest = words.as_slice();
        match any(&mut rest) {
            Some(filter) if rest.is_empty() => Ok(Self(Some(filter))),
            _ => Err(refuse(
                400,
                "invalid",
                format!("Invalid value for field 'filter': '{text}'. Invalid list filter expression."),
            )),
        }
    }

    pub(super) fn takes(&self, object: &Value) -> bool {
        self.0.as_ref().is_none_or(|filter| filter.takes(object))
    }
}

impl Filter {
    fn takes(&self, object: &Value) -> bool {
        let is = |field: &str, wanted: &dyn Fn(&str) -> bool| match field_of(object, field) {
            Value::String(text) => wanted(text),
            Value::Null => wanted(""),
            other => wanted(&other.to_string()),
        };
        match self {
            Self::All(parts) => parts.iter().all(|part| part.takes(object)),
            Self::Any(parts) => parts.iter().any(|part| part.takes(object)),
            Self::Not(part) => !part.takes(object),
            Self::Like(field, expression) => is(field, &|text| expression.is_match(text)),
            Self::Begins(field, start) => is(field, &|text| text.starts_with(start)),
            Self::Is(field, value) => is(field, &|text| text == value),
            Self::Has(field, value) if value == "*" => !field_of(object, field).is_null(),
            Self::Has(field, value) => is(field, &|text| text.contains(value.trim_matches('*'))),
        }
    }
}

fn field_of<'o>(object: &'o Value, path: &str) -> &'o Value {
    path.split('.').fold(object, |value, name| &value[name])
}

#[derive(Clone, Debug, PartialEq)]
enum Word {
    Sign(&'static str),
    Text(String),
}

/// Signs, words, and what is in quotes.
fn words(text: &str) -> Vec<Word> {
    const SIGNS: [&str; 5] = ["!=", "=", ":", "(", ")"];
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_expression = matches!(found.last(), Some(Word::Text(last)) if last == "eq" || last == "ne");
        let sign = SIGNS.into_iter().find(|sign| !is_expression && rest.starts_with(sign));
        let end = match sign {
            Some(sign) => sign.len(),
            None if first == '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            None if is_expression => expression(rest),
            None => {
                rest.find(|c: char| c.is_whitespace() || "=:()!\"".contains(c)).unwrap_or(rest.len()).max(1)
            }
        };
        let (word, after) = rest.split_at(end);
        found.push(sign.map_or_else(|| Word::Text(word.trim_matches('"').to_owned()), Word::Sign));
        rest = after;
        rest = rest.trim_start();
    }
    found
}

/// Where an expression without quotes ends: at a space, or before a parenthesis that it has not opened.
fn expression(text: &str) -> usize {
    let mut open = 0;
    let ends = |c: char| {
        open += i32::from(c == '(') - i32::from(c == ')');
        open < 0 || c.is_whitespace()
    };
    text.find(ends).unwrap_or(text.len())
}

fn any(rest: &mut &[Word]) -> Option<Filter> {
    let mut parts = vec![all(rest)?];
    while next_is(rest, "OR") {
        parts.push(all(rest)?);
    }
    Some(Filter::Any(parts))
}

fn all(rest: &mut &[Word]) -> Option<Filter> {
    let mut parts = vec![term(rest)?];
    loop {
        let ends = match rest.first() {
            None | Some(Word::Sign(")")) => true,
            Some(Word::Text(word)) => word == "OR",
            _ => false,
        };
        if ends {
            return Some(Filter::All(parts));
        }
        next_is(rest, "AND");
        parts.push(term(rest)?);
    }
}

fn next_is(rest: &mut &[Word], word: &str) -> bool {
    match rest.split_first() {
        Some((Word::Text(text), after)) if text == word => {
            *rest = after;
            true
        }
        _ => false,
    }
}

fn term(rest: &mut &[Word]) -> Option<Filter> {
    if next_is(rest, "NOT") {
        return Some(Filter::Not(Box::new(term(rest)?)));
    }
    if let Some((Word::Sign("("), inside)) = rest.split_first() {
        *rest = inside;
        let found = any(rest)?;
        let (Word::Sign(")"), after) = rest.split_first()? else { return None };
        *rest = after;
        return Some(found);
    }
    let [Word::Text(field), sign, Word::Text(value), after @ ..] = *rest else { return None };
    *rest = after;
    let (field, value) = (field.clone(), value.clone());
    Some(match sign {
        Word::Sign("=") => Filter::Is(field, value),
        Word::Sign("!=") => Filter::Not(Box::new(Filter::Is(field, value))),
        Word::Sign(":") => Filter::Has(field, value),
        Word::Text(word) if word == "eq" => like(field, &value)?,
        Word::Text(word) if word == "ne" => Filter::Not(Box::new(like(field, &value)?)),
        _ => return None,
    })
}

fn like(field: String, expression: &str) -> Option<Filter> {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match expression.strip_suffix(".*") {
        Some(start) if plain(start) => Some(Filter::Begins(field, start.to_owned())),
        _ => Some(Filter::Like(field, Regex::new(&format!("^(?:{expression})$")).ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_as_clients_write_them() {
        let object = json!({"name": "web", "priority": 1000, "labels": {"lab": "a"}, "disabled": false});
        for (text, wanted) in [
            (r#"name eq ".*\bweb\b.*""#, true),
            ("name eq we.*", true),
            ("name eq (web|ssh)", true),
            ("name eq we", false),
            ("(name eq (web|ssh)) (name ne a.*)", true),
            ("name ne web", false),
            ("name = web", true),
            ("name=\"web\"", true),
            ("name != web", false),
            ("labels.lab:*", true),
            ("labels.other:*", false),
            ("labels.lab = a AND priority = 1000", true),
            ("(name = ssh) OR (labels.lab = a)", true),
            ("(name = web) (disabled = true)", false),
            ("NOT name = ssh", true),
        ] {
            assert_eq!(Wanted::parse(Some(text)).unwrap().takes(&object), wanted, "{text}");
        }
        assert!(Wanted::parse(None).unwrap().takes(&object));
        for text in ["name", "name =", "(name = web", "name eq ["] {
            assert!(Wanted::parse(Some(text)).is_err(), "{text}");
        }
    }
}
