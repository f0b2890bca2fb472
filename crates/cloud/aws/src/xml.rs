//! EC2's XML as JSON: elements are fields, `<item>` lists are arrays, everything else is text.

use quick_xml::{Reader, events::Event};
use serde_json::{Map, Value};

/// An element that is being read.
#[derive(Default)]
struct Open {
    name: String,
    text: String,
    fields: Map<String, Value>,
    items: Vec<Value>,
}

impl Open {
    fn close(self) -> Value {
        match (self.items.is_empty(), self.fields.is_empty()) {
            (false, _) => Value::Array(self.items),
            (true, false) => Value::Object(self.fields),
            // An empty list looks like an empty text; both read as nothing.
            (true, true) if self.text.trim().is_empty() => Value::Null,
            (true, true) => Value::String(self.text),
        }
    }
}

/// The content of the root element. None if it is not XML.
pub(crate) fn parse(text: &str) -> Option<Value> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Open> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                open.push(Open { name, ..Open::default() });
            }
            Event::Empty(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                open.last_mut()?.fields.insert(name, Value::Null);
            }
            // Line breaks before and after the root are nobody's text.
            Event::Text(text) => {
                let text = text.decode().ok()?;
                match open.last_mut() {
                    Some(element) => element.text.push_str(&text),
                    None if text.trim().is_empty() => {}
                    None => return None,
                }
            }
            Event::GeneralRef(name) => {
                let text = match name.resolve_char_ref().ok()? {
                    Some(letter) => letter.to_string(),
                    None => quick_xml::escape::resolve_predefined_entity(&name.decode().ok()?)?.to_owned(),
                };
                open.last_mut()?.text.push_str(&text);
            }
            Event::End(_) => {
                let closed = open.pop()?;
                let (name, value) = (closed.name.clone(), closed.close());
                let Some(parent) = open.last_mut() else { return Some(value) };
                match name.as_str() {
                    "item" => parent.items.push(value),
                    _ => {
                        parent.fields.insert(name, value);
                    }
                }
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_lists_and_texts_are_told_apart() {
        let text = "<?xml version=\"1.0\"?><R xmlns=\"x\"><id>a &amp; b</id><set><item><k>1</k></item><item><k>2</k></item></set><none/></R>";
        assert_eq!(parse(text), Some(json!({"id": "a & b", "set": [{"k": "1"}, {"k": "2"}], "none": null})));
        assert_eq!(parse("<html><body>"), None);
        assert_eq!(parse("{}"), None);
        assert_eq!(parse(""), None);
    }
}
