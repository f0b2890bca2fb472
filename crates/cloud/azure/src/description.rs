//! What a user writes for a machine: Azure's own JSON, with its location. No network settings.

use cloud_api::{CloudError, field_among};
use model::Segment;
use serde_json::{Map, Value, json};

use crate::names::region_of;

/// What all descriptions have: a location, properties, tags.
pub(crate) struct Frame {
    /// What is described.
    pub(crate) what: &'static str,
    /// Fields that a user may set.
    pub(crate) fields: &'static [&'static str],
    pub(crate) shape: &'static str,
}

const MACHINE: Frame = Frame {
    what: "an Azure virtual machine",
    fields: &["location", "properties", "zones", "identity", "plan", "tags", "extendedLocation"],
    shape: r#"is JSON such as {"location": "westus2", "properties": {"hardwareProfile": {"vmSize": "Standard_B1s"}, "storageProfile": {…}, "osProfile": {…}}}"#,
};

pub(crate) fn invalid(what: &str, fault: impl std::fmt::Display) -> CloudError {
    CloudError::invalid(format!("the description of {what} {fault}"))
}

impl Frame {
    /// The region, and all fields.
    pub(crate) fn read(&self, text: &str) -> Result<(Segment, Map<String, Value>), CloudError> {
        let invalid = |fault: String| invalid(self.what, fault);
        let mut fields: Map<String, Value> = serde_json::from_str(text)
            .map_err(|err| invalid(format!("{}; this is not: {err}", self.shape)))?;
        if let Some(strange) = fields.keys().find(|name| !self.fields.contains(&name.as_str())) {
            return Err(invalid(format!("has {strange}, which Trestle sets or Azure does not know")));
        }
        let region = fields.get("location").and_then(Value::as_str).and_then(region_of);
        // What is behind a dash says which network of a location is meant.
        let region = region.filter(|region| !region.as_str().contains('-'));
        let region = region.ok_or_else(|| invalid("names no location".to_owned()))?;
        fields.insert("location".to_owned(), region.as_str().into());
        let tags = fields.get("tags").and_then(Value::as_object).into_iter().flatten();
        if let Some((key, _)) =
            tags.into_iter().find(|(key, _)| key.to_ascii_lowercase().starts_with("trestle-"))
        {
            return Err(invalid(format!("has the tag {key}, which is Trestle's own")));
        }
        match fields.get("properties") {
            Some(Value::Object(_)) => Ok((region, fields)),
            _ => Err(invalid("has no properties".to_owned())),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    pub(crate) region: Segment,
    pub(crate) fields: Map<String, Value>,
}

impl Description {
    pub(crate) fn parse(text: &str) -> Result<Self, CloudError> {
        let (region, mut fields) = MACHINE.read(text)?;
        let invalid = |fault: &str| invalid(MACHINE.what, fault);
        if let Some(name) = fields.get("properties").and_then(|all| field_among(all, &["networkProfile"])) {
            let why = format!("sets the network with {name}, which Trestle does; leave it out");
            return Err(invalid(&why));
        }
        let Some(Value::Object(properties)) = fields.get_mut("properties") else {
            return Err(invalid("has no properties"));
        };
        if !properties.get("hardwareProfile").is_some_and(Value::is_object) {
            return Err(invalid("has no hardwareProfile in its properties"));
        }
        // Disks go with the machine, so that nothing is left when it is deleted.
        if let Some(Value::Object(storage)) = properties.get_mut("storageProfile") {
            let disk = storage.entry("osDisk").or_insert_with(|| json!({"createOption": "FromImage"}));
            disk["deleteOption"] = "Delete".into();
            for disk in storage.get_mut("dataDisks").and_then(Value::as_array_mut).into_iter().flatten() {
                disk["deleteOption"] = "Delete".into();
            }
        }
        Ok(Self { region, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_a_location_and_no_network() {
        let text = r#"{"location":"West US 2","properties":{"hardwareProfile":{"vmSize":"Standard_B1s"},"storageProfile":{"dataDisks":[{"lun":0}]}}}"#;
        let fine = Description::parse(text).unwrap();
        assert_eq!((fine.region.as_str(), &fine.fields["location"]), ("westus2", &json!("westus2")));
        let storage = &fine.fields["properties"]["storageProfile"];
        assert_eq!(storage["osDisk"]["deleteOption"], "Delete");
        assert_eq!(storage["dataDisks"][0]["deleteOption"], "Delete");
        for bad in [
            "",
            "7",
            "{}",
            r#"{"location":"westus2"}"#,
            r#"{"location":"","properties":{"hardwareProfile":{}}}"#,
            r#"{"location":"westus2-k8s-k","properties":{"hardwareProfile":{}}}"#,
            r#"{"properties":{"hardwareProfile":{}}}"#,
            r#"{"location":"westus2","properties":{}}"#,
            r#"{"location":"westus2","name":"x","properties":{"hardwareProfile":{}}}"#,
            r#"{"location":"westus2","tags":{"Trestle-owner":"x"},"properties":{"hardwareProfile":{}}}"#,
            r#"{"location":"westus2","properties":{"hardwareProfile":{},"networkProfile":{}}}"#,
            r#"{"location":"westus2","properties":{"hardwareProfile":{},"NetworkProfile":{}}}"#,
        ] {
            assert!(Description::parse(bad).is_err(), "{bad}");
        }
    }
}
