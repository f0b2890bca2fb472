"""docs/terraform-reference.md from what `terraform providers schema -json` says of the provider, on standard input."""

import json
import sys

schemas = json.load(sys.stdin)["provider_schemas"]
(provider,) = (one for name, one in schemas.items() if name.endswith("/trestle/trestle"))


def kind(of):
    if isinstance(of, list):
        return f"{of[0]} of {kind(of[1])}s" if isinstance(of[1], str) else of[0]
    return of


def rows(attributes, before=""):
    for name, attribute in sorted(attributes.items(), key=lambda one: (not one[1].get("required"), not one[1].get("optional"), one[0])):
        nested = attribute.get("nested_type")
        use = "**required**" if attribute.get("required") else "optional" if attribute.get("optional") else "told"
        how = f"{nested['nesting_mode']} of" if nested else kind(attribute["type"])
        if attribute.get("sensitive"):
            how += ", secret"
        yield f"| `{before}{name}` | {use} | {how} | {attribute['description'].replace('|', chr(92) + '|')} |"
        if nested:
            yield from rows(nested["attributes"], f"{before}{name}.")


def section(title, block):
    print(f"\n### {title}\n\n{block['description']}\n\n| | | | |\n|---|---|---|---|")
    print("\n".join(rows(block["attributes"])))


print("# Terraform: reference\n")
print("Made from the provider's own description by `labs/terraform/run.sh`. How it is used: [Terraform](terraform.md).\n")
print("## Provider")
section("`trestle`", provider["provider"]["block"])
print("\n## Resources")
for name, schema in sorted(provider["resource_schemas"].items()):
    section(f"`{name}`", schema["block"])
print("\n## Data sources")
for name, schema in sorted(provider["data_source_schemas"].items()):
    section(f"`data {name}`", schema["block"])
