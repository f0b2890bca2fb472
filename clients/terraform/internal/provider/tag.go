package provider

import (
	"context"
	"slices"

	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"

	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/tagservicepb"
	"trestle.dev/clients/go/pb/trestlev1"
)

type tagModel struct {
	Name    types.String `tfsdk:"name"`
	IP      types.String `tfsdk:"ip"`
	URI     types.String `tfsdk:"uri"`
	Members types.Set    `tfsdk:"members"`
}

var tagKind = kind[tagModel]{
	name: "tag",
	schema: schema.Schema{
		Description: "A tag: a name for an address or a resource (`ip`, `uri`), or for a group of tags and addresses (`members`). Who else is in a group that Terraform has, is taken out.",
		Attributes: map[string]schema.Attribute{
			"name": fixed("Its name, by which rules and other tags mean it."),
			"ip":   optional("The address or prefix it stands for."),
			"uri":  optional("The resource it stands for."),
			"members": schema.SetAttribute{
				ElementType: types.StringType, Optional: true,
				Description: "Tags, addresses and prefixes. A tag must be there before it is a member: name it by its attribute (trestle_tag.NAME.name).",
				Validators:  []validator.Set{setvalidator.SizeAtLeast(1)},
				PlanModifiers: []planmodifier.Set{setplanmodifier.RequiresReplaceIf(
					func(_ context.Context, request planmodifier.SetRequest, answer *setplanmodifier.RequiresReplaceIfFuncResponse) {
						answer.RequiresReplace = request.StateValue.IsNull() != request.PlanValue.IsNull()
					}, "a group and an address are two things", "a group and an address are two things")},
			},
		},
	},
	rules: []resource.ConfigValidator{
		resourcevalidator.AtLeastOneOf(path.MatchRoot("ip"), path.MatchRoot("uri"), path.MatchRoot("members")),
		resourcevalidator.Conflicting(path.MatchRoot("ip"), path.MatchRoot("members")),
		resourcevalidator.Conflicting(path.MatchRoot("uri"), path.MatchRoot("members")),
	},
	called: func(m tagModel) string { return "tag " + m.Name.ValueString() },
	create: func(c *call, m *tagModel) error {
		name := m.Name.ValueString()
		there, err := found(second(c.Tags.GetTag(c, &tagservicepb.Tag{TagName: name})))
		switch {
		case err != nil:
			return err
		case there:
			return existing("tag "+name, "trestle_tag", name)
		}
		return second(c.Tags.SetTag(c, m.mapping()))
	},
	read: func(c *call, m *tagModel) (bool, error) {
		now, err := c.Tags.GetTag(c, &tagservicepb.Tag{TagName: m.Name.ValueString()})
		if err != nil {
			return found(err)
		}
		if plain(m.IP.ValueString()) != now.GetIp() {
			m.IP = textOf(now.GetIp())
		}
		m.URI = textOf(now.GetUri())
		m.Members = setOf(spelled(stringsOf(m.Members), now.GetChildTags()))
		return true, nil
	},
	update: func(c *call, before tagModel, m *tagModel) error {
		// Who comes in first: a group is never empty on the way.
		if err := second(c.Tags.SetTag(c, m.mapping())); err != nil {
			return err
		}
		var out []string
		wanted := stringsOf(m.Members)
		for _, member := range stringsOf(before.Members) {
			if !slices.ContainsFunc(wanted, func(one string) bool { return plain(one) == plain(member) }) {
				out = append(out, member)
			}
		}
		if len(out) == 0 {
			return nil
		}
		// A member whose tag is gone is none any more.
		return gone(second(c.Tags.DeleteTagMember(c, &tagservicepb.TagMapping{TagName: m.Name.ValueString(), ChildTags: out})))
	},
	remove: func(c *call, m tagModel) error {
		return second(c.Tags.DeleteTag(c, &tagservicepb.Tag{TagName: m.Name.ValueString()}))
	},
	imported: func(id string) (tagModel, error) {
		return tagModel{Name: types.StringValue(id), Members: setOf(nil)}, nil
	},
}

func (m tagModel) mapping() *tagservicepb.TagMapping {
	return &tagservicepb.TagMapping{TagName: m.Name.ValueString(), ChildTags: stringsOf(m.Members),
		Ip: m.IP.ValueStringPointer(), Uri: m.URI.ValueStringPointer()}
}

// second is the error of a call whose answer says nothing.
func second[A any](_ A, err error) error { return err }

type tagLook struct {
	Name      types.String `tfsdk:"name"`
	IP        types.String `tfsdk:"ip"`
	URI       types.String `tfsdk:"uri"`
	Members   types.List   `tfsdk:"members"`
	Addresses types.List   `tfsdk:"addresses"`
}

var tagSource = source[tagLook]{
	name: "tag",
	schema: dataschema.Schema{
		Description: "A tag, and what it comes to.",
		Attributes: map[string]dataschema.Attribute{
			"name": asked("Its name."), "ip": told("The address it stands for."), "uri": told("The resource it stands for."),
			"members":   toldTexts("Those that are in it directly."),
			"addresses": toldTexts("The addresses and prefixes that it comes to, however deep they lie."),
		},
	},
	read: func(c *call, m *tagLook) error {
		tag := &tagservicepb.Tag{TagName: m.Name.ValueString()}
		now, err := c.Tags.GetTag(c, tag)
		if err != nil {
			return err
		}
		below, err := c.Tags.ResolveTag(c, tag)
		if err != nil {
			return err
		}
		var addresses []string
		for _, leaf := range below.GetMappings() {
			if leaf.GetIp() != "" {
				addresses = append(addresses, leaf.GetIp())
			}
		}
		slices.Sort(addresses)
		m.IP, m.URI, m.Members, m.Addresses = textOf(now.GetIp()), textOf(now.GetUri()), listOf(now.GetChildTags()), listOf(slices.Compact(addresses))
		return nil
	},
}

type tagsLook struct {
	Prefix types.String `tfsdk:"prefix"`
	Tags   []tagOfAll   `tfsdk:"tags"`
}

type tagOfAll struct {
	Name    types.String `tfsdk:"name"`
	IP      types.String `tfsdk:"ip"`
	URI     types.String `tfsdk:"uri"`
	Members types.List   `tfsdk:"members"`
	From    types.String `tfsdk:"from"`
	Rules   types.Int64  `tfsdk:"rules"`
	Message types.String `tfsdk:"message"`
}

var tagsSource = source[tagsLook]{
	name: "tags",
	schema: dataschema.Schema{
		Description: "All tags, or those whose name begins with something.",
		Attributes: map[string]dataschema.Attribute{
			"prefix": maybe("Only names that begin with this."),
			"tags": toldEach("The tags, sorted by name.", map[string]dataschema.Attribute{
				"name": told("Its name."), "ip": told("The address it stands for."), "uri": told("The resource it stands for."),
				"members": toldTexts("Those that are in it directly."),
				"from":    told("Whose it is: `resource`, `host`, or null for one that somebody set."),
				"rules":   toldNumber("How many rules are on it."),
				"message": told("Why rules that name it permit nothing; null where they do."),
			}),
		},
	},
	read: func(c *call, m *tagsLook) error {
		answer, err := c.Orchestrator.DescribeTags(c, &trestlev1.DescribeTagsRequest{Prefix: m.Prefix.ValueString()})
		m.Tags = []tagOfAll{}
		for _, tag := range answer.GetTags() {
			m.Tags = append(m.Tags, tagOfAll{types.StringValue(tag.GetName()), textOf(tag.GetIp()), textOf(tag.GetUri()), listOf(tag.GetChildTags()),
				textOf(tag.GetFrom()), types.Int64Value(int64(tag.GetRules())), textOf(tag.GetMessage())})
		}
		return err
	},
}
