//! `trestle get`: objects as they are kept, listed, one by one or followed.

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;
use wire::trestle::v1::{
    ListObjectsRequest, ObjectRef, StoredObject, object_event::Type, objects_client::ObjectsClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    commands::object::{KindArg, kind, label, named},
    output::{Format, Rows},
};

/// Flags of `trestle get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle get pods -n shop
  trestle get networkpolicy web -n shop -o yaml
  trestle get networkpolicy shop/web
  trestle get pods -A -l app=web -o wide
  trestle get pods --watch")]
pub struct GetArgs {
    /// pods, networkpolicies, anp, acnp, tiers, groups … or all
    #[arg(value_parser = kind)]
    kind: KindArg,
    name: Option<String>,
    /// Only this namespace (default: all; `default` when a name is given)
    #[arg(short, long)]
    namespace: Option<String>,
    /// Of all namespaces, as it is without --namespace
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "name"])]
    all_namespaces: bool,
    /// Only those with these labels: app=web,tier!=front,team
    #[arg(short = 'l', long, value_name = "LABELS", value_delimiter = ',', conflicts_with_all = ["name", "watch"])]
    selector: Vec<Wanted>,
    /// Go on and show changes
    #[arg(short, long, conflicts_with = "name")]
    watch: bool,
}

/// One demand on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = |at: &str| {
            text.split_once(at).map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        };
        let wanted = match (split("!="), split("==").or_else(|| split("="))) {
            (Some((key, value)), _) => Self::IsNot(key, value),
            (None, Some((key, value))) => Self::Is(key, value),
            (None, None) => match text.trim().strip_prefix('!') {
                Some(key) => Self::HasNot(key.to_owned()),
                None => Self::Has(text.trim().to_owned()),
            },
        };
        let (Self::Is(key, _) | Self::IsNot(key, _) | Self::Has(key) | Self::HasNot(key)) = &wanted;
        if key.is_empty() || key.contains([' ', '(', ')']) {
            return Err(format!("{text:?} is not a demand like app=web, tier!=front, team or !team"));
        }
        Ok(wanted)
    }
}

impl Wanted {
    fn holds(&self, labels: &Value) -> bool {
        let of = |key: &str| labels.get(key).and_then(Value::as_str);
        match self {
            Self::Is(key, value) => of(key) == Some(value),
            Self::IsNot(key, value) => of(key) != Some(value),
            Self::Has(key) => of(key).is_some(),
            Self::HasNot(key) => of(key).is_none(),
        }
    }
}

impl GetArgs {
    pub fn is_watch(&self) -> bool {
        self.watch
    }
}

pub async fn get(args: GetArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut objects = ObjectsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let KindArg(kind) = args.kind;
    if let Some(name) = args.name {
        let kind = kind.context("name one kind to get one object")?;
        let request = named(kind, &name, args.namespace.as_deref())?;
        return output.one(&View::read(objects.get_object(request).await?.into_inner())?);
    }
    let kind = kind.map(|kind| kind.as_str().to_owned()).unwrap_or_default();
    let request = ListObjectsRequest { kind, namespace: args.namespace.unwrap_or_default() };
    if args.watch {
        return watch(&mut objects, request, output).await;
    }
    let mut pages = objects.list_objects(request).await?.into_inner();
    let mut views = Vec::new();
    while let Some(page) = pages.message().await? {
        for object in page.objects {
            let view = View::read(object)?;
            if args.selector.iter().all(|wanted| wanted.holds(&view.document["metadata"]["labels"])) {
                views.push(view);
            }
        }
    }
    output.list(&views)
}

async fn watch(
    objects: &mut ObjectsClient<Connection>,
    request: ListObjectsRequest,
    output: Format,
) -> anyhow::Result<()> {
    let mut events = objects.watch_objects(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        let word = match event.r#type() {
            Type::Applied => "applied",
            Type::Deleted => "deleted",
            Type::Synced => "synced",
            Type::Unspecified => "unknown",
        };
        let object =
            event.object.as_ref().and_then(|stored| stored.object.as_ref()).map(label).unwrap_or_default();
        let document =
            event.object.filter(|stored| !stored.document.is_empty()).map(View::read).transpose()?;
        let data = serde_json::json!({ "type": word, "object": object, "document": document });
        output.event(format!("{word} {object}").trim_end(), &data)?;
    }
    Ok(())
}

/// An object as it is shown: the document itself for programs.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct View {
    document: Value,
    #[serde(skip)]
    object: ObjectRef,
}

impl View {
    fn read(stored: StoredObject) -> anyhow::Result<Self> {
        let document =
            serde_json::from_slice(&stored.document).context("the controller sent a broken document")?;
        Ok(Self { document, object: stored.object.unwrap_or_default() })
    }
}

impl Rows for View {
    const HEADER: &'static [&'static str] = &["kind", "namespace", "name", "generation", "labels"];

    fn row(&self) -> Vec<String> {
        let metadata = &self.document["metadata"];
        let labels = metadata["labels"].as_object().map(|labels| {
            labels
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
        });
        vec![
            self.object.kind.clone(),
            self.object.namespace.clone(),
            self.object.name.clone(),
            metadata["generation"].to_string(),
            labels.unwrap_or_default().join(","),
        ]
    }

    /// Of a Pod where it is; of a Service at which address it is reached.
    const WIDE: &'static [&'static str] = &["address", "node"];

    fn wide(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let addresses = [&self.document["status"]["podIP"], &self.document["spec"]["clusterIP"]];
        let address = addresses.into_iter().map(text).find(|address| !address.is_empty());
        vec![address.unwrap_or_default(), text(&self.document["spec"]["nodeName"])]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_demanded_as_kubectl_has_it() {
        let labels = json!({ "app": "web", "tier": "front" });
        for (text, holds) in [
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("team!=a", true),
            ("tier", true),
            ("team", false),
            ("!team", true),
            ("!tier", false),
        ] {
            assert_eq!(text.parse::<Wanted>().unwrap().holds(&labels), holds, "{text}");
        }
        assert!("".parse::<Wanted>().is_err() && "app in (a)".parse::<Wanted>().is_err());
        assert!("team".parse::<Wanted>().is_ok_and(|wanted| !wanted.holds(&Value::Null)));
    }
}
