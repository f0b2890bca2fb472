package provider

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/invisinetspb"
	"trestle.dev/clients/go/pb/trestlev1"
)

type ruleModel struct {
	Resource   types.String `tfsdk:"resource"`
	Tag        types.String `tfsdk:"tag"`
	Name       types.String `tfsdk:"name"`
	Direction  types.String `tfsdk:"direction"`
	Protocol   types.String `tfsdk:"protocol"`
	Port       types.String `tfsdk:"port"`
	SourcePort types.String `tfsdk:"source_port"`
	Peers      types.Set    `tfsdk:"peers"`
	Build      types.Bool   `tfsdk:"build"`
}

func defaulted(value, description string, checks ...validator.String) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, Description: description, Default: stringdefault.StaticString(value), Validators: checks}
}

func holder(description string) schema.StringAttribute {
	attribute := optional(description)
	attribute.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplace()}
	return attribute
}

var ruleKind = kind[ruleModel]{
	name: "rule",
	schema: schema.Schema{
		Description: "A permit rule at one end: on a resource, or on a tag and so at everything in it, now and later. A packet passes when the other end permits it too; trestle_permission is both ends at once.",
		Attributes: map[string]schema.Attribute{
			"resource":    holder("The resource that has it: NAMESPACE.CLOUD.NAME."),
			"tag":         holder("The tag that has it, instead."),
			"name":        fixed("Its name, once on its resource or tag."),
			"direction":   defaulted("in", "`in`: traffic that peers start (default). `out`: traffic that the resource starts.", stringvalidator.OneOf("in", "out")),
			"protocol":    defaulted("any", "`tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, a number of IANA's, or `any` (default).", checked(protocolNumber)),
			"port":        defaulted("any", "Destination port: `443`, `8000-8010`, or `any` (default).", checked(portNumbers)),
			"source_port": defaulted("any", "Source port, likewise.", checked(portNumbers)),
			"peers": schema.SetAttribute{ElementType: types.StringType, Required: true, Validators: []validator.Set{setvalidator.SizeAtLeast(1)},
				Description: "Who is at the other end: tags, names of resources, addresses, prefixes."},
			"build": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				Description: "It is reason enough for a link to another cloud, whether or not the other end permits anything. Links take long and cost."},
		},
	},
	rules:  []resource.ConfigValidator{resourcevalidator.ExactlyOneOf(path.MatchRoot("resource"), path.MatchRoot("tag"))},
	called: func(m ruleModel) string { return "rule " + m.id() },
	create: func(c *call, m *ruleModel) error {
		there, err := m.find(c)
		switch {
		case err != nil:
			return err
		case there != nil:
			return existing("rule "+m.id(), "trestle_rule", m.id())
		}
		return m.put(c)
	},
	read: func(c *call, m *ruleModel) (bool, error) {
		rule, err := m.find(c)
		if err != nil || rule == nil {
			return false, err
		}
		m.Direction = types.StringValue(directionWord(rule))
		if number, err := protocolNumber(m.Protocol.ValueString()); err != nil || number != rule.GetProtocol() {
			m.Protocol = types.StringValue(protocolWord(rule.GetProtocol()))
		}
		m.Port, m.SourcePort = types.StringValue(portWord(rule.GetDstPort(), rule.GetDstPortLast())), types.StringValue(portWord(rule.GetSrcPort(), rule.GetSrcPortLast()))
		m.Peers = setOf(spelled(stringsOf(m.Peers), rule.GetTags()))
		if m.Build.IsNull() {
			m.Build = types.BoolValue(false)
		}
		return true, nil
	},
	update: func(c *call, _ ruleModel, m *ruleModel) error { return m.put(c) },
	remove: func(c *call, m ruleModel) error {
		outcome, err := c.Orchestrator.DeleteRules(c, &trestlev1.DeleteRulesRequest{On: m.on(), Names: []string{m.Name.ValueString()}})
		if err != nil {
			return err
		}
		return c.WaitJob(c, outcome.GetJob())
	},
	imported: func(id string) (ruleModel, error) {
		m := ruleModel{Peers: setOf(nil)}
		on, name, ok := strings.Cut(id, "/")
		switch {
		case ok && name != "" && strings.HasPrefix(on, "resource:"):
			m.Resource = types.StringValue(strings.TrimPrefix(on, "resource:"))
		case ok && name != "" && strings.HasPrefix(on, "tag:"):
			m.Tag = types.StringValue(strings.TrimPrefix(on, "tag:"))
		default:
			return m, errors.New("write resource:NAMESPACE.CLOUD.NAME/RULE or tag:TAG/RULE")
		}
		m.Name = types.StringValue(name)
		return m, nil
	},
}

func (m ruleModel) id() string {
	if m.Tag.IsNull() {
		return "resource:" + m.Resource.ValueString() + "/" + m.Name.ValueString()
	}
	return "tag:" + m.Tag.ValueString() + "/" + m.Name.ValueString()
}

func (m ruleModel) on() *trestlev1.RuleHolder {
	if m.Tag.IsNull() {
		return &trestlev1.RuleHolder{Holder: &trestlev1.RuleHolder_Resource{Resource: m.Resource.ValueString()}}
	}
	return &trestlev1.RuleHolder{Holder: &trestlev1.RuleHolder_Tag{Tag: m.Tag.ValueString()}}
}

// find is the rule as it is now; nil if there is none, or nothing to have it.
func (m ruleModel) find(c *call) (*invisinetspb.PermitListRule, error) {
	answer, err := c.Orchestrator.ListRules(c, m.on())
	for _, rule := range answer.GetRules() {
		if rule.GetId() == m.Name.ValueString() {
			return rule, nil
		}
	}
	return nil, gone(err)
}

func (m ruleModel) put(c *call) error {
	protocol, err := protocolNumber(m.Protocol.ValueString())
	if err != nil {
		return err
	}
	rule := &invisinetspb.PermitListRule{Id: m.Name.ValueString(), Protocol: protocol, Tags: stringsOf(m.Peers)}
	if m.Direction.ValueString() == "out" {
		rule.Direction = invisinetspb.Direction_OUTBOUND
	}
	for _, port := range []struct {
		written     types.String
		first, last *int32
	}{{m.Port, &rule.DstPort, &rule.DstPortLast}, {m.SourcePort, &rule.SrcPort, &rule.SrcPortLast}} {
		numbers, err := portNumbers(port.written.ValueString())
		if err != nil {
			return err
		}
		*port.first, *port.last = numbers[0], numbers[1]
	}
	outcome, err := c.Orchestrator.PutRules(c, &trestlev1.PutRulesRequest{On: m.on(), Rules: []*invisinetspb.PermitListRule{rule}, Build: m.Build.ValueBool()})
	if err != nil {
		return err
	}
	return c.WaitJob(c, outcome.GetJob())
}

var protocols = map[string]int32{"any": -1, "icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}

func protocolNumber(word string) (int32, error) {
	if number, ok := protocols[word]; ok {
		return number, nil
	}
	number, err := strconv.ParseUint(word, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is no protocol: tcp, udp, sctp, icmp, icmpv6, any, or a number up to 255", word)
	}
	return int32(number), nil
}

func protocolWord(number int32) string {
	for word, known := range protocols {
		if known == number {
			return word
		}
	}
	return strconv.Itoa(int(number))
}

// portNumbers are the first port and the last, as the contract has them: -1 for any, and no last of a single one.
func portNumbers(text string) ([2]int32, error) {
	if text == "any" {
		return [2]int32{-1, 0}, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 10, 16)
	last := uint64(0)
	if err == nil && isRange {
		last, err = strconv.ParseUint(to, 10, 16)
	}
	if err != nil || (isRange && last < first) {
		return [2]int32{}, fmt.Errorf("%q is no port: write 443, 8000-8010 or any", text)
	}
	if last == first {
		last = 0
	}
	return [2]int32{int32(first), int32(last)}, nil
}

func portWord(first, last int32) string {
	switch {
	case first < 0:
		return "any"
	case last > first:
		return fmt.Sprintf("%d-%d", first, last)
	default:
		return strconv.Itoa(int(first))
	}
}

func directionWord(rule *invisinetspb.PermitListRule) string {
	if rule.GetDirection() == invisinetspb.Direction_OUTBOUND {
		return "out"
	}
	return "in"
}

type rulesLook struct {
	Resource  types.String `tfsdk:"resource"`
	Tag       types.String `tfsdk:"tag"`
	Namespace types.String `tfsdk:"namespace"`
	Rules     []ruleOfAll  `tfsdk:"rules"`
}

type ruleOfAll struct {
	From       types.String `tfsdk:"from"`
	Name       types.String `tfsdk:"name"`
	Direction  types.String `tfsdk:"direction"`
	Protocol   types.String `tfsdk:"protocol"`
	Port       types.String `tfsdk:"port"`
	SourcePort types.String `tfsdk:"source_port"`
	Peers      types.List   `tfsdk:"peers"`
	Targets    types.List   `tfsdk:"targets"`
	State      types.String `tfsdk:"state"`
	Message    types.String `tfsdk:"message"`
	InForce    types.List   `tfsdk:"in_force"`
	NotInForce types.List   `tfsdk:"not_in_force"`
}

var rulesSource = source[rulesLook]{
	name: "rules",
	schema: dataschema.Schema{
		Description: "What is in force and from where: rules of resources and of tags, what policies and permissions give. Everywhere, or at one resource, by one tag, in one namespace.",
		Attributes: map[string]dataschema.Attribute{
			"resource": maybe("At this resource: its rules, those of the tags it is in, what policies and permissions give it."),
			"tag":      maybe("On this tag."), "namespace": maybe("In this namespace."),
			"rules": toldEach("The rules.", map[string]dataschema.Attribute{
				"from": told("Where it comes from: a resource, `tag NAME`, `permission NAME`, or a policy and its rule."),
				"name": told("Its name."), "direction": told("`in` or `out`."), "protocol": told("As in trestle_rule."),
				"port": told("Destination port."), "source_port": told("Source port."), "peers": toldTexts("Peers as they were written."),
				"targets": toldTexts("The addresses that its peers come to."), "state": told("`in force`, `in part`, or `not in force`."),
				"message": told("Why it is not in force."), "in_force": toldTexts("Resources that have it."),
				"not_in_force": toldTexts("Resources that shall have it and do not."),
			}),
		},
	},
	read: func(c *call, m *rulesLook) error {
		scope := &trestlev1.RuleScope{}
		switch {
		case !m.Resource.IsNull():
			scope.Scope = &trestlev1.RuleScope_Resource{Resource: m.Resource.ValueString()}
		case !m.Tag.IsNull():
			scope.Scope = &trestlev1.RuleScope_Tag{Tag: m.Tag.ValueString()}
		case !m.Namespace.IsNull():
			scope.Scope = &trestlev1.RuleScope_Namespace{Namespace: m.Namespace.ValueString()}
		}
		answer, err := c.Orchestrator.ListRulesInForce(c, scope)
		m.Rules = []ruleOfAll{}
		for _, info := range answer.GetRules() {
			rule := info.GetRule()
			m.Rules = append(m.Rules, ruleOfAll{
				types.StringValue(info.GetFrom()), types.StringValue(rule.GetId()), types.StringValue(directionWord(rule)),
				types.StringValue(protocolWord(rule.GetProtocol())), types.StringValue(portWord(rule.GetDstPort(), rule.GetDstPortLast())),
				types.StringValue(portWord(rule.GetSrcPort(), rule.GetSrcPortLast())), listOf(rule.GetTags()), listOf(rule.GetTargets()),
				types.StringValue(info.GetState()), textOf(info.GetMessage()), listOf(info.GetInForce()), listOf(info.GetNotInForce()),
			})
		}
		return err
	},
}
