//! The images that everybody may start an instance from.

use serde_json::{Value, json};

use super::state::Request;

const NAMES: [&str; 2] = ["ibm-debian-12-12-minimal-amd64-1", "ibm-ubuntu-24-04-3-minimal-amd64-1"];

fn image(number: usize, name: &str, request: &Request<'_>) -> Value {
    let id = format!("r006-{number:08x}-1111-4000-8000-000000000000");
    let vendor = name.split('-').nth(1).unwrap_or_default();
    let system = json!({"name": format!("{vendor}-amd64"), "display_name": vendor, "family": vendor, "vendor": vendor, "version": "1",
        "architecture": "amd64", "dedicated_host_only": false, "allow_user_image_creation": true, "user_data_format": "cloud_init",
        "href": request.href(&format!("operating_systems/{vendor}-amd64"))});
    json!({"id": id, "name": name, "href": request.href(&format!("images/{id}")), "crn": format!("crn:v1:bluemix:public:is:us-south:a/sim::image:{id}"),
        "created_at": "2026-01-01T00:00:00Z", "resource_type": "image", "status": "available", "status_reasons": [], "visibility": "public",
        "encryption": "none", "user_data_format": "cloud_init", "minimum_provisioned_size": 100, "operating_system": system, "zones": [],
        "file": {"size": 1}, "catalog_offering": {"managed": false}, "allowed_use": {"api_version": "2026-01-01", "bare_metal_server": "true", "instance": "true"},
        "resource_group": {"id": "default-group", "name": "Default", "href": "https://resource-controller.cloud.ibm.com/v2/resource_groups/default-group"}})
}

pub(super) fn images(request: &Request<'_>) -> Value {
    let all = NAMES.iter().enumerate().map(|(number, name)| image(number, name, request));
    let fits = |image: &Value| {
        let is = |field: &str| request.parameter(field).is_none_or(|value| image[field] == value.as_str());
        is("name") && is("visibility") && is("status")
    };
    let found: Vec<Value> = all.filter(fits).collect();
    json!({"total_count": found.len(), "limit": 50, "first": {"href": request.href("images?limit=50")}, "images": found})
}
