//! What a user writes for a machine: Azure's own JSON, with its location. No network settings.

use cloud_api::{CloudError, field_among};
use model::Segment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{place::*, types::*};

/// What all descriptions have: a location, properties, tags.
pub struct Frame {
    /// What is described.
    pub what: &'static str,
    /// Further fields that a user may set.
    pub fields: &'static [&'static str],
    pub shape: &'static str,
}

const MACHINE: Frame = Frame {
    what: "an Azure virtual machine",
    fields: &["zones", "identity", "plan", "extendedLocation"],
    shape: r#"is JSON such as {"location": "westus2", "properties": {"hardwareProfile": {"vmSize": "Standard_B1s"}, "storageProfile": {…}, "osProfile": {…}}}"#,
};

/// What a user wrote, all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    #[serde(default)]
    pub location: String,
    #[serde(default)]
    pub tags: Map<String, Value>,
    #[serde(default)]
    pub properties: Map<String, Value>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Written {
    /// With tags of ours.
    pub fn tagged(mut self, tags: Tags) -> Self {
        self.tags.extend(tags.0.into_iter().map(|(key, value)| (key, value.into())));
        self
    }
}

impl Frame {
    pub fn invalid(&self, fault: impl std::fmt::Display) -> CloudError {
        CloudError::invalid(format!("the description of {} {fault}", self.what))
    }

    /// The region, and what was written, with the location as Azure writes it.
    pub fn read(&self, text: &str) -> Result<(Segment, Written)> {
        let mut written: Written = serde_json::from_str(text)
            .map_err(|err| self.invalid(format!("{}; this is not: {err}", self.shape)))?;
        if let Some(strange) = written.rest.keys().find(|name| !self.fields.contains(&name.as_str())) {
            return Err(self.invalid(format!("has {strange}, which Trestle sets or Azure does not know")));
        }
        // What is behind a dash says which network of a location is meant.
        let region = region_of(&written.location).filter(|region| !region.as_str().contains('-'));
        let region = region.ok_or_else(|| self.invalid("names no location"))?;
        written.location = region.to_string();
        let mut keys = written.tags.keys();
        if let Some(key) = keys.find(|key| key.to_ascii_lowercase().starts_with("trestle-")) {
            return Err(self.invalid(format!("has the tag {key}, which is Trestle's own")));
        }
        Ok((region, written))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub region: Segment,
    written: Written,
}

impl Description {
    pub fn parse(text: &str) -> Result<Self> {
        let (region, mut written) = MACHINE.read(text)?;
        let properties = &mut written.properties;
        if let Some(name) = field_among(&Value::Object(properties.clone()), &["networkProfile"]) {
            let why = format!("sets the network with {name}, which Trestle does; leave it out");
            return Err(MACHINE.invalid(why));
        }
        if !properties.get("hardwareProfile").is_some_and(Value::is_object) {
            return Err(MACHINE.invalid("has no hardwareProfile in its properties"));
        }
        // Disks go with the machine, so that nothing is left when it is deleted.
        if let Some(Value::Object(storage)) = properties.get_mut("storageProfile") {
            storage.entry("osDisk").or_insert_with(|| json!({"createOption": "FromImage"}));
            let data = |(name, _): &(&String, &mut Value)| *name == "osDisk" || *name == "dataDisks";
            for (_, disks) in storage.iter_mut().filter(data) {
                let disks = match disks {
                    Value::Array(disks) => disks.as_mut_slice(),
                    disk => std::slice::from_mut(disk),
                };
                for disk in disks.iter_mut().filter_map(Value::as_object_mut) {
                    disk.insert("deleteOption".to_owned(), "Delete".into());
                }
            }
        }
        Ok(Self { region, written })
    }

    /// The machine as it is asked for: with one interface, which goes with it.
    pub fn body(self, tags: Tags, interface: &Id<Interface>) -> Written {
        let mut body = self.written.tagged(tags);
        let interface = json!({"id": interface, "properties": {"primary": true, "deleteOption": "Delete"}});
        body.properties.insert("networkProfile".to_owned(), json!({"networkInterfaces": [interface]}));
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_a_location_and_no_network() {
        let text = r#"{"location":"West US 2","tags":{"a":"b"},"zones":["1"],"properties":{"hardwareProfile":{"vmSize":"Standard_B1s"},"storageProfile":{"dataDisks":[{"lun":0}]}}}"#;
        let fine = Description::parse(text).unwrap();
        assert_eq!(fine.region.as_str(), "westus2");
        let body =
            serde_json::to_value(fine.body(Tags([("c".into(), "d".into())].into()), &Id::new("/i"))).unwrap();
        let disks = json!({
            "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
            "dataDisks": [{"lun": 0, "deleteOption": "Delete"}],
        });
        let interface = json!({"id": "/i", "properties": {"primary": true, "deleteOption": "Delete"}});
        let wanted = json!({"location": "westus2", "tags": {"a": "b", "c": "d"}, "zones": ["1"], "properties": {
            "hardwareProfile": {"vmSize": "Standard_B1s"},
            "storageProfile": disks,
            "networkProfile": {"networkInterfaces": [interface]},
        }});
        assert_eq!(body, wanted);
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
            r#"{"location":"westus2","tags":7,"properties":{"hardwareProfile":{}}}"#,
            r#"{"location":"westus2","tags":{"Trestle-owner":"x"},"properties":{"hardwareProfile":{}}}"#,
            r#"{"location":"westus2","properties":{"hardwareProfile":{},"networkProfile":{}}}"#,
            r#"{"location":"westus2","properties":{"hardwareProfile":{},"NetworkProfile":{}}}"#,
        ] {
            assert!(Description::parse(bad).is_err(), "{bad}");
        }
    }
}
