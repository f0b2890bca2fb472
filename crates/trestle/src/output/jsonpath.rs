//! `-o jsonpath=TEMPLATE`, as kubectl has it (pure): text, and between braces what is taken of the data. What a path means is RFC 9535's.
//!
//! In: a template, and data. Out: a text. `{.metadata.name}` is a path, `{"\n"}` a text, `{range PATH}…{end}` repeats for each of what the path
//! finds. Outside brackets a name may hold whatever is no dot or bracket, and `\.` is a dot in it: `.labels.app\.kubernetes\.io/name`.
//! A list is also its own `.items`, as kubectl's lists are. Not here: functions of kubectl's own.

use serde_json::Value;
use serde_json_path::JsonPath;

/// What is shown of data.
#[derive(Debug)]
pub struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    Path(Path),
    Range(Path, Vec<Part>),
}

#[derive(Debug)]
struct Path {
    written: JsonPath,
    /// The same for a list, if it begins with `.items`.
    of_list: Option<JsonPath>,
}

impl Template {
    /// Without braces it is one path.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.contains('{') {
            return Ok(Self(vec![Part::Path(Path::parse(text.trim())?)]));
        }
        // The innermost `range` that is open stands last, with its path; the whole has none.
        let mut open: Vec<(Option<Path>, Vec<Part>)> = vec![(None, Vec::new())];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (inside, left) =
                braced(after).ok_or_else(|| format!("{text:?} has a brace that is not closed"))?;
            rest = left;
            let ended = match inside.trim() {
                "end" => Some(open.pop().unwrap_or_default()),
                _ => None,
            };
            let (_, parts) = open.last_mut().ok_or("{end} ends no {range}")?;
            if let Some((path, mut within)) = ended {
                within.extend(plain(before));
                parts.push(Part::Range(path.ok_or("{end} ends no {range}")?, within));
                continue;
            }
            parts.extend(plain(before));
            match inside.trim() {
                word if word.starts_with("range ") => {
                    open.push((Some(Path::parse(word["range ".len()..].trim())?), Vec::new()))
                }
                word if word.starts_with(['"', '\'']) => parts.push(Part::Text(unquoted(word)?)),
                word => parts.push(Part::Path(Path::parse(word)?)),
            }
        }
        match open.pop() {
            Some((None, mut parts)) => {
                parts.extend(plain(rest));
                Ok(Self(parts))
            }
            _ => Err("a {range} has no {end}".to_owned()),
        }
    }

    /// What is not there is nothing.
    pub fn apply(&self, data: &Value) -> String {
        let mut text = String::new();
        write(&self.0, data, &mut text);
        text
    }
}

/// What a path finds in data.
pub fn find<'a>(path: &str, data: &'a Value) -> Result<Vec<&'a Value>, String> {
    Ok(Path::parse(path)?.find(data))
}

fn write(parts: &[Part], data: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(said) => text.push_str(said),
            Part::Path(path) => {
                let found = path.find(data).into_iter().map(|value| match value {
                    Value::String(said) => said.clone(),
                    other => other.to_string(),
                });
                text.push_str(&found.collect::<Vec<_>>().join(" "));
            }
            Part::Range(path, within) => path.find(data).into_iter().for_each(|one| write(within, one, text)),
        }
    }
}

impl Path {
    fn parse(text: &str) -> Result<Self, String> {
        let read = |path: &str| {
            let standard = standard(path)
                .ok_or_else(|| format!("{text:?} is no path like .metadata.name or .items[*].name"))?;
            JsonPath::parse(&standard).map_err(|err| format!("{text:?} is no path: {err}"))
        };
        let of_list = text
            .trim_start_matches('$')
            .strip_prefix(".items")
            .filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        Ok(Self { written: read(text)?, of_list: of_list.map(|rest| read(&format!("${rest}"))).transpose()? })
    }

    fn find<'a>(&self, data: &'a Value) -> Vec<&'a Value> {
        let path = self.of_list.as_ref().filter(|_| data.is_array()).unwrap_or(&self.written);
        path.query(data).all()
    }
}

/// As RFC 9535 writes it: names that are more than letters stand in brackets there. None: it is no path.
fn standard(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let mut path = "$".to_owned();
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    // The whole is written `.` or `@` too.
    if rest == "." {
        return Some(path);
    }
    while !rest.is_empty() {
        if rest.starts_with('[') {
            let end = bracketed(rest)?;
            path.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        rest = rest.strip_prefix('.')?;
        if let Some(below) = rest.strip_prefix('.') {
            path.push_str("..");
            rest = below;
        } else if rest.starts_with('[') {
            continue;
        }
        if rest.starts_with('[') {
            continue;
        }
        let (name, left) = name(rest);
        match name.as_str() {
            "" => return None,
            "*" => path.push_str("[*]"),
            name => path.push_str(&format!("[{}]", Value::from(name))),
        }
        rest = left;
    }
    Some(path)
}

/// A name, and what follows it.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// Where the bracket ends that a text begins with.
fn bracketed(text: &str) -> Option<usize> {
    let mut depth = 0;
    ends(text, |character| {
        depth += i32::from(character == '[') - i32::from(character == ']');
        depth == 0
    })
}

/// What stands before the brace that closes, and what follows it.
fn braced(text: &str) -> Option<(&str, &str)> {
    let end = ends(text, |character| character == '}')?;
    Some((&text[..end - 1], &text[end..]))
}

/// Behind the first character that ends a text; quoted ones do not.
fn ends(text: &str, mut is_end: impl FnMut(char) -> bool) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some(_) if character == '\\' => escaped = true,
            Some(begun) if character == begun => quote = None,
            Some(_) => {}
            None if matches!(character, '"' | '\'') => quote = Some(character),
            None if is_end(character) => return Some(at + character.len_utf8()),
            None => {}
        }
    }
    None
}

fn plain(text: &str) -> Option<Part> {
    (!text.is_empty()).then(|| Part::Text(text.to_owned()))
}

fn unquoted(text: &str) -> Result<String, String> {
    let quote = &text[..1];
    let inner = text[1..].strip_suffix(quote).ok_or_else(|| format!("{text} is not closed"))?;
    let text = if quote == "'" { inner.replace("\\'", "'").replace('"', "\\\"") } else { inner.to_owned() };
    serde_json::from_str(&format!("\"{text}\"")).map_err(|err| format!("{text:?} is no text: {err}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(template: &str, data: &Value) -> String {
        Template::parse(template).unwrap().apply(data)
    }

    #[test]
    fn templates_are_kubectls() {
        let pod = json!({
            "metadata": { "name": "web-1", "labels": { "app.kubernetes.io/name": "web", "my-team": "a" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Old", "status": "False" }] },
            "ports": [80, 443]
        });
        for (template, text) in [
            ("{.metadata.name}", "web-1"),
            (".metadata.name", "web-1"),
            ("$.metadata.name", "web-1"),
            ("{.metadata['name']}", "web-1"),
            (r"{.metadata.labels.app\.kubernetes\.io/name}", "web"),
            ("{.metadata.labels.my-team}", "a"),
            (r#"name: {.metadata.name}{"\n"}"#, "name: web-1\n"),
            ("{.metadata.name}{'\\t'}{.ports[0]}", "web-1\t80"),
            ("{.ports[*]}", "80 443"),
            ("{.ports[-1:]}", "443"),
            (r#"{.status.conditions[?(@.type=="Ready")].status}"#, "True"),
            ("{..type}", "Ready Old"),
            ("{.nothing.there}", ""),
            ("{range .status.conditions[*]}{.type}={.status};{end}", "Ready=True;Old=False;"),
            ("{range .status.conditions[*]}{@.type}{range .nothing}x{end} {end}.", "Ready Old ."),
            ("{.ports}", "[80,443]"),
            ("{'}'}{.metadata.name}", "}web-1"),
        ] {
            assert_eq!(shown(template, &pod), text, "{template}");
        }
        assert_eq!(shown("{.}", &json!([1])), "[1]");
    }

    #[test]
    fn a_list_is_its_own_items() {
        let list = json!([{ "name": "a" }, { "name": "b" }]);
        for template in
            ["{.items[*].name}", "{[*].name}", "{range .items[*]}{.name} {end}", "{$.items[*].name}"]
        {
            assert_eq!(shown(template, &list).trim(), "a b", "{template}");
        }
        assert_eq!(shown("{.items}", &json!({ "items": 1 })), "1");
        assert_eq!(shown("{.itemsets}", &list), "");
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for template in [
            "{",
            "{.a",
            "{range .a}",
            "{end}",
            "{range .a}{end}{end}",
            "{}",
            "{a b",
            "{.a..}",
            "{'a}",
            "{.a[}",
            "",
            "{name}",
        ] {
            assert!(
                Template::parse(template).is_err(),
                "{template:?} is taken for {:?}",
                Template::parse(template)
            );
        }
    }
}
