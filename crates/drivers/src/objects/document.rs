//! Documents: JSON as users wrote it, and the object it describes.

use std::fmt;

use model::policy::{Kind, Object, ObjectId, TypeMeta, UnknownKind, fields, output::Problem, validate};
use serde::{
    Deserialize as _, Deserializer, Serialize,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json};
use store::{Entry, ReadError};

use super::{Unreadable, json, parse_error};

/// What becomes of a document with fields or of a version that are not known. Stored, it is always a problem that is told,
/// and a policy among them closes what it selects ([`super::Unreadable`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// It is refused.
    #[default]
    Strict,
    /// It is stored, and the caller is told.
    Warn,
    /// It is stored.
    Ignore,
}

/// A document that describes a valid object.
#[derive(Clone, Debug)]
pub struct Document {
    object: Object,
    id: ObjectId,
    json: Value,
    /// What is not known of it.
    unknown: Vec<Problem>,
}

/// Why a document was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("it is not JSON")]
    Json(#[source] serde_json::Error),
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    #[error("{kind} {name:?} does not have the shape of its kind: {text}")]
    Shape { kind: String, name: String, text: String },
    #[error("{id}: {}", list(problems))]
    Invalid { id: ObjectId, problems: Vec<Problem> },
}

pub(super) fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| format!("{}: {}", problem.path, problem.message))
        .collect::<Vec<_>>()
        .join("; ")
}

impl Document {
    /// Reads and validates. Known fields that decide nothing here are kept as they are.
    pub fn read(bytes: &[u8], validation: Validation) -> Result<Self, DocumentError> {
        let mut json: Value = json::read(bytes).map_err(DocumentError::Json)?;
        let types = TypeMeta::deserialize(&json).unwrap_or_default();
        let kind = types.kind()?;
        if kind.is_namespaced() {
            // As kubectl does.
            let namespace = metadata(&mut json).entry("namespace").or_insert_with(|| "default".into());
            if namespace.as_str() == Some("") {
                *namespace = "default".into();
            }
        }
        let object = parse(&json)?;
        let mut unknown = fields::unknown(kind, &json);
        let mut problems =
            if validation == Validation::Strict { std::mem::take(&mut unknown) } else { Vec::new() };
        problems.extend(validate(&object));
        let id = object.id();
        if !problems.is_empty() {
            return Err(DocumentError::Invalid { id, problems });
        }
        Ok(Self { object, id, json, unknown })
    }

    /// What of it is not known, and is stored all the same; none if it was read as [`Validation::Strict`].
    pub fn unknown(&self) -> &[Problem] {
        &self.unknown
    }

    pub fn id(&self) -> &ObjectId {
        &self.id
    }

    pub fn object(&self) -> &Object {
        &self.object
    }

    /// What the engine would be told if it were stored: where not all of it is known, what stands in for it.
    pub fn in_effect(&self) -> Option<Object> {
        match self.unknown.as_slice() {
            [] => Some(self.object.clone()),
            unknown => Unreadable::unknown(self, unknown).stand_in,
        }
    }

    pub fn into_object(self) -> Object {
        self.object
    }

    pub fn json(&self) -> &Value {
        &self.json
    }

    /// An API server has written it: such documents have what only one fills in, and what is read from here has not.
    pub fn is_of_cluster(&self) -> bool {
        let filled = |field: &str| self.json["metadata"][field].as_str().is_some_and(|text| !text.is_empty());
        filled("uid") && filled("resourceVersion")
    }

    /// Whether it says the same as another, but for what the store fills in and what clusters add on export.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (Value::Object(these), Value::Object(those)) = (&self.json, &other.json) else {
            return self.json == other.json;
        };
        written(these).eq(written(those)) && written_metadata(these).eq(written_metadata(those))
    }

    /// Whether what stands there is filled in by the store, or added by clusters on export.
    pub(super) fn is_filled_in(path: &str) -> bool {
        let field = path.strip_prefix("metadata.").and_then(|rest| rest.split(['.', '[']).next());
        field.is_some_and(|field| FILLED_IN.contains(&field))
    }

    /// As it was read, by whoever knows its kind.
    pub(super) fn of(object: Object, json: Value) -> Self {
        Self { id: object.id(), object, json, unknown: Vec::new() }
    }

    /// The same document with another `spec`.
    pub(super) fn with_spec(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Self {
        let mut json = self.json.clone();
        if let Some(spec) = json.get_mut("spec").and_then(Value::as_object_mut) {
            change(spec);
        }
        let object =
            parse(&json).expect("fields of the right type were added to a document that has its shape");
        Self { object, id: self.id.clone(), json, unknown: self.unknown.clone() }
    }

    /// The same document under an identity of its own.
    pub(super) fn identified(&self, uid: &str, generation: i64) -> Self {
        let mut json = self.json.clone();
        let fields = metadata(&mut json);
        fields.insert("uid".to_owned(), uid.into());
        fields.insert("generation".to_owned(), generation.into());
        for field in ["resourceVersion", "creationTimestamp", "managedFields", "selfLink"] {
            fields.remove(field);
        }
        let mut object = self.object.clone();
        let metadata = object.metadata_mut();
        uid.clone_into(&mut metadata.uid);
        metadata.generation = generation;
        Self { object, id: self.id.clone(), json, unknown: self.unknown.clone() }
    }
}

/// Of metadata, what no user writes.
const FILLED_IN: [&str; 6] =
    ["uid", "generation", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"];

fn written(document: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    document.iter().filter(|(field, _)| *field != "metadata")
}

fn written_metadata(document: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let metadata = document.get("metadata").and_then(Value::as_object).into_iter().flatten();
    metadata.filter(|(field, _)| !FILLED_IN.contains(&field.as_str()))
}

fn parse(json: &Value) -> Result<Object, DocumentError> {
    let types = TypeMeta::deserialize(json).unwrap_or_default();
    let kind = types.kind()?;
    kind.deserialize(json).map_err(|err| DocumentError::Shape {
        kind: types.kind,
        name: json["metadata"]["name"].as_str().unwrap_or_default().chars().take(64).collect(),
        text: err.to_string(),
    })
}

fn metadata(json: &mut Value) -> &mut Map<String, Value> {
    if !json.is_object() {
        *json = json!({});
    }
    let fields = json.as_object_mut().expect("made one above");
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("made one above")
}

/// A document with what the store keeps beside it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The set it was applied with; empty for none.
    pub set: String,
    pub document: Document,
}

/// The document of an entry as it is, if it is JSON at all.
pub(super) fn raw(entry: &Entry) -> Option<Value> {
    serde_json::from_slice::<Envelope>(&entry.value).ok().map(|envelope| envelope.document)
}

/// The set of an entry, without a look at its document; none if it cannot be read.
pub(super) fn set_of(entry: &Entry) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Set {
        #[serde(default)]
        set: String,
    }
    serde_json::from_slice::<Set>(&entry.value).ok().map(|envelope| envelope.set)
}

#[derive(serde::Deserialize)]
struct Envelope {
    #[serde(default)]
    set: String,
    document: Value,
}

/// The same, to be written.
#[derive(Serialize)]
struct Enveloped<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    set: &'a str,
    document: &'a Value,
}

/// The object of an entry that is of this kind and known as a whole, read at once: no document is made. None of every other.
pub(super) fn known_object(kind: Kind, entry: &Entry) -> Option<Object> {
    if !within(entry, Known(kind)).ok()? {
        return None;
    }
    within(entry, Whole(kind)).ok()
}

/// What stands at `document` of an entry.
fn within<'de, S: DeserializeSeed<'de>>(entry: &'de Entry, seed: S) -> serde_json::Result<S::Value> {
    let mut json = serde_json::Deserializer::from_slice(&entry.value);
    let found = json.deserialize_map(InEnvelope(seed))?;
    json.end()?;
    Ok(found)
}

struct InEnvelope<S>(S);

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for InEnvelope<S> {
    type Value = S::Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object as it is stored")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<S::Value, A::Error> {
        let (mut seed, mut found) = (Some(self.0), None);
        while let Some(name) = fields.next_key::<String>()? {
            match (name == "document", seed.take()) {
                (true, Some(seed)) => found = Some(fields.next_value_seed(seed)?),
                (true, None) => return Err(A::Error::duplicate_field("document")),
                (false, kept) => {
                    seed = kept;
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        found.ok_or_else(|| A::Error::missing_field("document"))
    }
}

struct Known(Kind);

impl<'de> DeserializeSeed<'de> for Known {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<bool, D::Error> {
        fields::is_known(self.0, document)
    }
}

struct Whole(Kind);

impl<'de> DeserializeSeed<'de> for Whole {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Object, D::Error> {
        self.0.deserialize(document)
    }
}

impl Stored {
    pub fn id(&self) -> &ObjectId {
        &self.document.id
    }

    pub fn read(entry: &Entry) -> Result<Self, ReadError> {
        let envelope: Envelope =
            serde_json::from_slice(&entry.value).map_err(|err| parse_error(entry, err))?;
        // What was valid when it was stored is taken as it is: the engine fails closed on what it cannot enforce.
        let object = parse(&envelope.document).map_err(|err| parse_error(entry, err))?;
        let id = object.id();
        Ok(Self {
            set: envelope.set,
            document: Document { object, id, json: envelope.document, unknown: Vec::new() },
        })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let envelope = Enveloped { set: &self.set, document: &self.document.json };
        serde_json::to_vec(&envelope).expect("JSON values have no odd keys")
    }
}

#[cfg(test)]
mod tests {
    use model::policy::Kind;

    use super::*;

    fn read(text: &str) -> Result<Document, DocumentError> {
        Document::read(text.as_bytes(), Validation::Strict)
    }

    #[test]
    fn a_document_without_namespace_is_in_default() {
        let document = read(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#).unwrap();
        let default = ObjectId { kind: Kind::Pod, namespace: "default".into(), name: "a".into() };
        assert_eq!(document.id(), &default);
    }

    /// What is read at once is what is read the long way; and what is not as it should be is left to that.
    #[test]
    fn what_is_known_as_a_whole_is_read_without_a_document() {
        let stored = |value: &str| Entry {
            key: "objects/Pod/default/a".parse().unwrap(),
            value: value.to_owned().into(),
            created: store::Revision(1),
            modified: store::Revision(1),
            lease: None,
        };
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default","uid":"u","generation":2,
            "labels":{"app":"w\u00e9b"}},"spec":{"nodeName":"n","containers":[{"ports":[{"containerPort":80}]}]},
            "status":{"podIPs":[{"ip":"10.0.0.1"}]}}"#;
        for envelope in
            [format!(r#"{{"document":{pod}}}"#), format!(r#"{{"set":"s","new":[1],"document":{pod}}}"#)]
        {
            let entry = stored(&envelope);
            let long = Stored::read(&entry).unwrap();
            assert_eq!(known_object(Kind::Pod, &entry).as_ref(), Some(long.document.object()));
        }
        for (kind, envelope) in [
            (Kind::Pod, "{}".to_owned()),
            (Kind::Pod, String::new()),
            (Kind::Pod, format!(r#"{{"document":{pod}}} x"#)),
            (Kind::Pod, format!(r#"{{"document":{pod},"document":{pod}}}"#)),
            (Kind::Pod, format!(r#"{{"document":{}}}"#, pod.replace("nodeName", "nodename"))),
            (Kind::Pod, format!(r#"{{"document":{}}}"#, pod.replace("\"v1\"", "\"v2\""))),
            (Kind::Pod, format!(r#"{{"document":{}}}"#, pod.replace("[{\"ip\":\"10.0.0.1\"}]", "7"))),
            (Kind::Node, format!(r#"{{"document":{pod}}}"#)),
        ] {
            assert_eq!(known_object(kind, &stored(&envelope)), None, "{envelope}");
        }
    }

    #[test]
    fn what_the_store_fills_in_makes_no_difference() {
        let pod = |metadata: &str| {
            read(&format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a"{metadata}}}}}"#))
                .unwrap()
        };
        let plain = pod("");
        assert!(
            plain.is_like(&pod(
                r#","uid":"u","generation":3,"resourceVersion":"7","managedFields":[{"x":1}]"#
            ))
        );
        assert!(!plain.is_like(&pod(r#","labels":{"uid":"u"}"#)));
        for (path, is_filled_in) in [
            ("metadata.uid", true),
            ("metadata.managedFields[0].x", true),
            ("metadata.labels.uid", false),
            ("metadata.name", false),
            ("uid", false),
            ("metadata", false),
        ] {
            assert_eq!(Document::is_filled_in(path), is_filled_in, "{path}");
        }
    }

    #[test]
    fn what_is_not_known_may_be_stored_if_that_is_asked_for() {
        let text = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"nodename":"n"}}"#;
        assert!(Document::read(text, Validation::Strict).is_err());
        for validation in [Validation::Warn, Validation::Ignore] {
            let document = Document::read(text, validation).unwrap();
            assert_eq!(document.unknown()[0].path, "spec.nodename");
            assert_eq!(document.json()["spec"]["nodename"], "n");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("", "not JSON"),
            ("[]", "kind"),
            ("null", "kind"),
            (r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#, "Secret"),
            (r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":5}}"#, "shape"),
            (r#"{"apiVersion":"v1","kind":"Pod","metadata":7}"#, "metadata.name"),
            (
                r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a"},"spec":
                   {"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/9"]}}]}]}}"#,
                "spec.ingress[0].from[0].ipBlock.except[0]",
            ),
            (
                r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a"},"spec":
                   {"ingress":[{"form":[]}]}}"#,
                "spec.ingress[0].form: unknown field; did you mean \"from\"?",
            ),
            (r#"{"apiVersion":"v2","kind":"Pod","metadata":{"name":"a"}}"#, "apiVersion: `v2`"),
            (
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"}}"#,
                "metadata.name: given twice",
            ),
        ] {
            let error = common::chain(&read(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
