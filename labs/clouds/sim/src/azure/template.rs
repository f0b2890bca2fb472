//! Expressions of Azure's templates: `[parameters('key')]`, `[resourceId('Microsoft.Network/virtualNetworks', 'v')]`.
//!
//! In: a template with its parameters. Out: values. Only what Azure's own clients write: `parameters`, `variables`, `concat`,
//! `resourceId`, `resourceGroup`, `reference`.

use serde_json::{Value, json};

use super::{Refusal, refuse};
use crate::rest::text;

/// Everything that an expression can name.
pub(super) struct Template<'t> {
    pub(super) body: &'t Value,
    pub(super) parameters: &'t Value,
    /// `/subscriptions/S/resourceGroups/G`
    pub(super) scope: &'t str,
    /// The properties of an object, by id or name.
    pub(super) reference: &'t dyn Fn(&str) -> Value,
}

impl Template<'_> {
    /// A value with all its expressions worked out.
    pub(super) fn value(&self, value: &Value) -> Result<Value, Refusal> {
        match value {
            Value::String(written) => match written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
            {
                Some(inside) if !inside.starts_with('[') => self.expression(inside),
                _ => Ok(value.clone()),
            },
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| Ok((name.clone(), self.value(value)?))).collect()
            }
            other => Ok(other.clone()),
        }
    }

    fn expression(&self, written: &str) -> Result<Value, Refusal> {
        let mut rest = written.trim();
        let value = self.term(&mut rest).filter(|_| rest.is_empty());
        let message = format!("Unable to evaluate template language expression '{written}'.");
        value.ok_or_else(|| refuse(400, "InvalidTemplate", message))
    }

    /// `'text'`, or `name(term, term).field.field`.
    fn term(&self, rest: &mut &str) -> Option<Value> {
        if let Some(quoted) = rest.strip_prefix('\'') {
            let (inside, after) = quoted.split_once('\'')?;
            *rest = after.trim_start();
            return Some(inside.into());
        }
        let (name, after) = rest.split_once('(')?;
        *rest = after.trim_start();
        let mut arguments = Vec::new();
        while !rest.starts_with(')') {
            arguments.push(self.term(rest)?);
            *rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        *rest = &rest[1..];
        let mut value = self.call(name.trim(), &arguments)?;
        while let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            value = value.get(&after[..end])?.clone();
            *rest = &after[end..];
        }
        *rest = rest.trim_start();
        Some(value)
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Option<Value> {
        let first = arguments.first().map(text).unwrap_or_default();
        match name {
            "parameters" => {
                let given = self.parameters.get(first).map(|given| &given["value"]);
                given.or_else(|| self.body["parameters"].get(first)?.get("defaultValue")).cloned()
            }
            "variables" => self.value(self.body["variables"].get(first)?).ok(),
            "concat" => Some(arguments.iter().map(text).collect::<String>().into()),
            "resourceGroup" => Some(json!({"location": "westus2", "id": self.scope})),
            "resourceId" => {
                let names: Vec<&str> = arguments.iter().skip(1).map(text).collect();
                Some(id(self.scope, first, &names)?.into())
            }
            "reference" => Some((self.reference)(first)),
            _ => None,
        }
    }
}

/// The id of `Microsoft.Network/virtualNetworks/subnets` and `v`, `s`.
pub(super) fn id(scope: &str, kinds: &str, names: &[&str]) -> Option<String> {
    let (provider, kinds) = kinds.split_once('/')?;
    let parts: String = kinds.split('/').zip(names).map(|(kind, name)| format!("/{kind}/{name}")).collect();
    (kinds.split('/').count() == names.len()).then(|| format!("{scope}/providers/{provider}{parts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_as_clients_write_them() {
        let body = json!({"parameters": {"b": {"defaultValue": "two"}}, "variables": {"c": "[concat(parameters('a'), '-', parameters('b'))]"}});
        let template = Template {
            body: &body,
            parameters: &json!({"a": {"value": "one"}}),
            scope: "/subscriptions/s/resourceGroups/g",
            reference: &|name| json!({ "of": name }),
        };
        let subnet =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s";
        for (written, wanted) in [
            ("plain", json!("plain")),
            ("[parameters('a')]", json!("one")),
            ("[variables('c')]", json!("one-two")),
            ("[resourceId('Microsoft.Network/virtualNetworks/subnets', 'v', 's')]", json!(subnet)),
            ("[reference('x').of]", json!("x")),
            ("[resourceGroup().location]", json!("westus2")),
        ] {
            assert_eq!(template.value(&json!([written])).unwrap(), json!([wanted]), "{written}");
        }
        for written in ["[parameters('z')]", "[other('a')]", "[parameters('a'", "[concat('a')x]"] {
            let outcome = template.value(&json!(written));
            assert_eq!(outcome.is_err(), written.ends_with(']'), "{written}");
        }
    }
}
