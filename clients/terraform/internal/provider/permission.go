package provider

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/trestlev1"
)

type permissionModel struct {
	From    types.String `tfsdk:"from"`
	To      types.String `tfsdk:"to"`
	Traffic types.Set    `tfsdk:"traffic"`
	Build   types.Bool   `tfsdk:"build"`
	Name    types.String `tfsdk:"name"`
}

var permissionKind = kind[permissionModel]{
	name: "permission",
	schema: schema.Schema{
		Description: "Who may open which connections to whom, as one thing: both ends get what they need for it, and the link between clouds if there must be one. As `trestle allow` makes it. It never overrules a policy that denies; then a warning says which.",
		Attributes: map[string]schema.Attribute{
			"from": fixed("Who opens connections: a resource, host, Pod, tag, namespace or address. With its kind before it nothing is guessed: `resource:`, `host:`, `pod:`, `tag:`, `namespace:`, `ip:`."),
			"to":   fixed("To whom, likewise."),
			"traffic": schema.SetAttribute{ElementType: types.StringType, Required: true, Validators: []validator.Set{setvalidator.SizeAtLeast(1)},
				Description:   "What is allowed: `tcp 5432`, `udp 8000-8010`, `icmp`, `tcp`, `any`.",
				PlanModifiers: []planmodifier.Set{setplanmodifier.RequiresReplace()}},
			"build": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				Description: "Gateways and links may be built for it, which takes long and costs. Without it what needs them is refused."},
			"name": filled("Its name, made of its content."),
		},
	},
	called: func(m permissionModel) string {
		if m.From.IsNull() {
			return "permission " + m.Name.ValueString()
		}
		return "permission from " + m.From.ValueString() + " to " + m.To.ValueString()
	},
	create: func(c *call, m *permissionModel) error {
		trial := m.request()
		trial.DryRun, trial.Build = true, true
		planned, err := c.Permissions.Allow(c, trial)
		if err != nil {
			return err
		}
		name := planned.GetPermission().GetName()
		there, err := found(second(c.Permissions.GetPermission(c, &trestlev1.PermissionRequest{Name: name})))
		switch {
		case err != nil:
			return err
		case there:
			return existing("the permission "+name, "trestle_permission", name)
		}
		outcome, err := c.Permissions.Allow(c, m.request())
		if err != nil {
			return err
		}
		m.Name = types.StringValue(outcome.GetPermission().GetName())
		if err := c.WaitJob(c, outcome.GetJob()); err != nil {
			return halfDone{err}
		}
		m.prove(c)
		return nil
	},
	read: func(c *call, m *permissionModel) (bool, error) {
		now, err := c.Permissions.GetPermission(c, &trestlev1.PermissionRequest{Name: m.Name.ValueString()})
		if err != nil {
			return found(err)
		}
		if now.GetState() == "gone" {
			return false, nil
		}
		if now.GetState() == "failed" {
			c.warn("permission from "+now.GetFrom()+" to "+now.GetTo()+" is not in force", now.GetMessage())
		}
		// Its name is made of its content: what it says is what it said.
		if m.From.IsNull() {
			m.From, m.To, m.Traffic = types.StringValue(now.GetFrom()), types.StringValue(now.GetTo()), setOf(now.GetTraffic())
			m.Build = types.BoolValue(false)
		}
		return true, nil
	},
	remove: func(c *call, m permissionModel) error {
		outcome, err := c.Permissions.Deny(c, &trestlev1.DenyRequest{Name: m.Name.ValueString()})
		if err != nil {
			return err
		}
		return c.WaitJob(c, outcome.GetJob())
	},
	imported: func(id string) (permissionModel, error) {
		return permissionModel{Name: types.StringValue(id), Traffic: setOf(nil)}, nil
	},
	planned: func(c *call, before *permissionModel, config tfsdk.Config, _ *tfsdk.Plan) []path.Path {
		var m permissionModel
		if c.told.Append(config.Get(c, &m)...); before != nil || c.told.HasError() {
			return nil
		}
		m.tellBuild(c)
		return nil
	},
}

func (m permissionModel) request() *trestlev1.AllowRequest {
	return &trestlev1.AllowRequest{From: m.From.ValueString(), To: m.To.ValueString(), Traffic: stringsOf(m.Traffic), Build: m.Build.ValueBool()}
}

// tellBuild says while it is planned what will be built between clouds, and what that takes. Ends that are not there yet cannot be asked
// about.
func (m permissionModel) tellBuild(c *call) {
	trial := m.request()
	trial.DryRun, trial.Build = true, true
	planned, err := c.Permissions.Allow(c, trial)
	build := planned.GetBuild()
	if err != nil || build == nil {
		return
	}
	said := []string{"Gateways: " + strings.Join(build.GetGateways(), ", "), "Links: " + strings.Join(build.GetLinks(), ", ")}
	if build.Seconds != nil {
		said = append(said, "It usually takes "+duration(build.GetSeconds())+".")
	} else {
		said = append(said, "A cloud does not say how long it takes.")
	}
	switch build.GetCost() {
	case "hourly":
		said = append(said, "It costs by the hour as long as it is there, and by what passes.")
	case "":
		said = append(said, "A cloud does not say what it costs.")
	}
	if !m.Build.ValueBool() {
		said = append(said, "This is refused unless `build = true`.")
	}
	c.warn("Permitting "+m.From.ValueString()+" to reach "+m.To.ValueString()+" builds a connection between clouds", strings.Join(said, "\n"))
}

// prove warns of what denies the connection all the same.
func (m permissionModel) prove(c *call) {
	proof, err := c.Permissions.Prove(c, m.request())
	if err != nil || proof.GetAllowed() {
		return
	}
	var said []string
	for _, pair := range proof.GetPairs() {
		if explained := pair.GetExplanation(); !explained.GetAllowed() {
			said = append(said, pair.GetFrom()+" to "+pair.GetTo()+", "+pair.GetTraffic()+": "+explained.GetVerdict())
			said = append(said, explained.GetRemedies()...)
		}
	}
	c.warn("Something else still denies what was permitted from "+m.From.ValueString()+" to "+m.To.ValueString(),
		strings.Join(append(said, proof.GetNotes()...), "\n"))
}

type permissionsLook struct {
	Permissions []permissionOfAll `tfsdk:"permissions"`
}

type permissionOfAll struct {
	Name    types.String `tfsdk:"name"`
	From    types.String `tfsdk:"from"`
	To      types.String `tfsdk:"to"`
	Traffic types.List   `tfsdk:"traffic"`
	State   types.String `tfsdk:"state"`
	Message types.String `tfsdk:"message"`
}

var permissionsSource = source[permissionsLook]{
	name: "permissions",
	schema: dataschema.Schema{
		Description: "All permissions, and how far each is.",
		Attributes: map[string]dataschema.Attribute{"permissions": toldEach("The permissions.", map[string]dataschema.Attribute{
			"name": told("Its name."), "from": told("Who opens connections, with its kind."), "to": told("To whom, with its kind."),
			"traffic": toldTexts("What is allowed."), "state": told("`planned`, `pending`, `in force`, `failed` or `gone`."),
			"message": told("What it waits for, or why it failed."),
		})},
	},
	read: func(c *call, m *permissionsLook) error {
		answer, err := c.Permissions.ListPermissions(c, &trestlev1.ListPermissionsRequest{})
		m.Permissions = []permissionOfAll{}
		for _, one := range answer.GetPermissions() {
			m.Permissions = append(m.Permissions, permissionOfAll{types.StringValue(one.GetName()), types.StringValue(one.GetFrom()),
				types.StringValue(one.GetTo()), listOf(one.GetTraffic()), types.StringValue(one.GetState()), textOf(one.GetMessage())})
		}
		return err
	},
}

type explainLook struct {
	Source      types.String `tfsdk:"source"`
	Destination types.String `tfsdk:"destination"`
	Protocol    types.String `tfsdk:"protocol"`
	Port        types.Int64  `tfsdk:"port"`
	Verdict     types.String `tfsdk:"verdict"`
	Allowed     types.Bool   `tfsdk:"allowed"`
	Because     types.List   `tfsdk:"because"`
	Remedies    types.List   `tfsdk:"remedies"`
	Notes       types.List   `tfsdk:"notes"`
}

var explainSource = source[explainLook]{
	name: "explain",
	schema: dataschema.Schema{
		Description: "Why a connection is permitted or denied. In a `check` block it asserts who reaches whom.",
		Attributes: map[string]dataschema.Attribute{
			"source":      asked("An address, `namespace.cloud.name` of a resource, `namespace/name` of a Pod, or `node/name`."),
			"destination": asked("Likewise."),
			"protocol":    maybe("`tcp`, `udp`, `sctp`, `icmp` or `other`. Absent: `tcp` if a port is given, else all of them."),
			"port":        dataschema.Int64Attribute{Optional: true, Description: "The destination port. Absent: every port."},
			"verdict":     told("`allowed`, `denied`, or `some`: of what was asked about, some is open and some is not."),
			"allowed":     toldBool("Everything that was asked about is open."),
			"because":     toldTexts("What decides, at the source and then at the destination."),
			"remedies":    toldTexts("What would have to change; empty when permitted."),
			"notes":       toldTexts("What the reader must know to trust the answer."),
		},
	},
	read: func(c *call, m *explainLook) error {
		question := &trestlev1.ExplainRequest{Source: m.Source.ValueString(), Destination: m.Destination.ValueString(), Protocol: m.Protocol.ValueString()}
		if !m.Port.IsNull() {
			port := uint32(m.Port.ValueInt64())
			question.Port = &port
		}
		answer, err := c.Policies.Explain(c, question)
		if err != nil {
			return err
		}
		var because []string
		for _, side := range []*trestlev1.ExplainedSide{answer.GetEgress(), answer.GetIngress()} {
			if steps := side.GetSteps(); len(steps) > 0 {
				last := steps[len(steps)-1]
				because = append(because, strings.TrimSpace(last.GetStage()+": "+last.GetOutcome()+" "+strings.Join(last.GetDetails(), "; ")))
			}
		}
		m.Verdict, m.Allowed, m.Because = types.StringValue(answer.GetVerdict()), types.BoolValue(answer.GetAllowed()), listOf(because)
		m.Remedies, m.Notes = listOf(answer.GetRemedies()), listOf(answer.GetNotes())
		return nil
	},
}
