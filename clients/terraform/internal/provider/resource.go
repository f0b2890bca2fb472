package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/trestlev1"
)

type resourceModel struct {
	Name        types.String `tfsdk:"name"`
	Description types.String `tfsdk:"description"`
	Attach      types.String `tfsdk:"attach"`
	Region      types.String `tfsdk:"region"`
	URI         types.String `tfsdk:"uri"`
	IP          types.String `tfsdk:"ip"`
}

// origin is what a resource was made of. The controller does not tell it, so of one that was imported it is taken as it is written.
func origin(description string) schema.StringAttribute {
	attribute := optional(description)
	attribute.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplaceIf(
		func(_ context.Context, request planmodifier.StringRequest, answer *stringplanmodifier.RequiresReplaceIfFuncResponse) {
			answer.RequiresReplace = !request.StateValue.IsNull()
		}, "what it is made of cannot be changed", "what it is made of cannot be changed")}
	return attribute
}

var resourceKind = kind[resourceModel]{
	name: "resource",
	schema: schema.Schema{
		Description: "A resource of a cloud: something that is made there, or exists there and is attached. It is closed until rules, permissions or policies open it.",
		Attributes: map[string]schema.Attribute{
			"name":        fixed("NAMESPACE.CLOUD.NAME, which is also its tag."),
			"description": origin("What the cloud makes: its own description, without network settings. The docs of each cloud have examples; jsonencode() writes it."),
			"attach":      origin("The cloud's own id of what exists, which is attached instead of made."),
			"region":      filled("Where it is."),
			"uri":         filled("The cloud's own name of it."),
			"ip":          filled("Its address."),
		},
	},
	rules:  []resource.ConfigValidator{resourcevalidator.Conflicting(path.MatchRoot("description"), path.MatchRoot("attach"))},
	called: func(m resourceModel) string { return "resource " + m.Name.ValueString() },
	create: func(c *call, m *resourceModel) error {
		request := &trestlev1.CreateCloudResourceRequest{Name: m.Name.ValueString(), Description: m.Description.ValueString()}
		if id := m.Attach.ValueString(); id != "" {
			request.Attach, request.Description = true, id
		}
		outcome, err := c.Orchestrator.CreateCloudResource(c, request)
		if err != nil {
			return err
		}
		m.Region, m.URI, m.IP = types.StringNull(), types.StringNull(), types.StringNull()
		if err := c.WaitJob(c, outcome.GetJob()); err != nil {
			return halfDone{err}
		}
		there, err := m.refresh(c)
		if err == nil && !there {
			err = errAway
		}
		if err != nil {
			return halfDone{err}
		}
		return nil
	},
	read: func(c *call, m *resourceModel) (bool, error) { return m.refresh(c) },
	remove: func(c *call, m resourceModel) error {
		outcome, err := c.Orchestrator.DeleteResource(c, &trestlev1.ResourceRequest{Name: m.Name.ValueString()})
		if err != nil {
			return err
		}
		return c.WaitJob(c, outcome.GetJob())
	},
	imported: func(id string) (resourceModel, error) { return resourceModel{Name: types.StringValue(id)}, nil },
}

func (m *resourceModel) refresh(c *call) (bool, error) {
	now, err := c.Orchestrator.GetResource(c, &trestlev1.ResourceRequest{Name: m.Name.ValueString()})
	if err != nil {
		return found(err)
	}
	if now.GetState() == "removing" {
		return false, nil
	}
	if said := now.GetMessage(); said != "" {
		c.warn("resource "+m.Name.ValueString()+" is "+now.GetState(), said)
	}
	m.Region, m.URI, m.IP = textOf(now.GetRegion()), textOf(now.GetUri()), textOf(now.GetIp())
	return true, nil
}

type resourceLook struct {
	Name    types.String `tfsdk:"name"`
	Region  types.String `tfsdk:"region"`
	State   types.String `tfsdk:"state"`
	URI     types.String `tfsdk:"uri"`
	IP      types.String `tfsdk:"ip"`
	Message types.String `tfsdk:"message"`
	Notes   types.List   `tfsdk:"notes"`
}

func lookAt(now *trestlev1.ResourceInfo) resourceLook {
	return resourceLook{types.StringValue(now.GetName()), textOf(now.GetRegion()), types.StringValue(now.GetState()), textOf(now.GetUri()),
		textOf(now.GetIp()), textOf(now.GetMessage()), listOf(now.GetNotes())}
}

func resourceAttributes(name dataschema.StringAttribute) map[string]dataschema.Attribute {
	return map[string]dataschema.Attribute{
		"name": name, "region": told("Where it is."), "state": told("`wanted`, `making`, `ready` or `removing`."), "uri": told("The cloud's own name of it."),
		"ip": told("Its address."), "message": told("The last trouble with it."), "notes": toldTexts("What else is to be known: rules that the other end does not answer."),
	}
}

var resourceSource = source[resourceLook]{
	name: "resource",
	schema: dataschema.Schema{
		Description: "A resource as it is. What is in force there is in trestle_rules.",
		Attributes:  resourceAttributes(asked("NAMESPACE.CLOUD.NAME.")),
	},
	read: func(c *call, m *resourceLook) error {
		now, err := c.Orchestrator.GetResource(c, &trestlev1.ResourceRequest{Name: m.Name.ValueString()})
		if err == nil {
			*m = lookAt(now)
		}
		return err
	},
}

type resourcesLook struct {
	Namespace types.String   `tfsdk:"namespace"`
	Resources []resourceLook `tfsdk:"resources"`
}

var resourcesSource = source[resourcesLook]{
	name: "resources",
	schema: dataschema.Schema{
		Description: "All resources, or those of a namespace.",
		Attributes: map[string]dataschema.Attribute{
			"namespace": maybe("Only this namespace's."),
			"resources": toldEach("The resources, sorted by name.", resourceAttributes(told("NAMESPACE.CLOUD.NAME."))),
		},
	},
	read: func(c *call, m *resourcesLook) error {
		answer, err := c.Orchestrator.ListResources(c, &trestlev1.ListResourcesRequest{Namespace: m.Namespace.ValueString()})
		m.Resources = []resourceLook{}
		for _, now := range answer.GetResources() {
			m.Resources = append(m.Resources, lookAt(now))
		}
		return err
	},
}
