package provider

import (
	"encoding/json"
	"errors"
	"strings"

	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	yaml "go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	trestle "trestle.dev/clients/go"
	"trestle.dev/clients/go/pb/trestlev1"
)

type objectModel struct {
	Manifest  types.String `tfsdk:"manifest"`
	Enforced  types.Bool   `tfsdk:"wait_enforced"`
	Kind      types.String `tfsdk:"kind"`
	Namespace types.String `tfsdk:"namespace"`
	Name      types.String `tfsdk:"name"`
}

// identity is told while it is planned, by the controller.
func identity(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Description: description, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
}

var objectKind = kind[objectModel]{
	name: "object",
	schema: schema.Schema{
		Description: "A Kubernetes-style object, above all a policy: NetworkPolicy, Antrea's and ClusterNetworkPolicy, tiers, groups, external entities, Services. The controller reads it while it is planned, so what is wrong with it is told before anything is changed.",
		Attributes: map[string]schema.Attribute{
			"manifest": schema.StringAttribute{Required: true, Validators: []validator.String{checked(oneDocument)},
				Description: "The object, as YAML or JSON: one document with apiVersion, kind and metadata. file(), or yamlencode() of a value."},
			"wait_enforced": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				Description: "A change of it has been made when every node and cloud that it concerns has it in force."},
			"kind":      identity("Its kind, as `trestle get` names it."),
			"namespace": identity("Its namespace; null for kinds without."),
			"name":      identity("Its name."),
		},
	},
	called: func(m objectModel) string { return m.called() },
	create: func(c *call, m *objectModel) error {
		trial, err := m.apply(c, true)
		if err != nil {
			return err
		}
		m.named(trial.GetObject())
		if trial.GetOutcome() != trestlev1.Outcome_OUTCOME_CREATED {
			return existing(m.called(), "trestle_object", m.id())
		}
		return m.store(c)
	},
	read: func(c *call, m *objectModel) (bool, error) {
		stored, err := c.Objects.GetObject(c, m.ref())
		if err != nil {
			return found(err)
		}
		if m.Enforced.IsNull() {
			m.Enforced = types.BoolValue(false)
		}
		if !m.Manifest.IsNull() {
			same, err := m.same(c)
			if err != nil || same {
				return true, err
			}
		}
		written, err := essence(stored.GetDocument())
		m.Manifest = types.StringValue(written)
		return true, err
	},
	update: func(c *call, before objectModel, m *objectModel) error {
		trial, err := m.apply(c, true)
		if err != nil {
			return err
		}
		m.named(trial.GetObject())
		if err := m.store(c); err != nil {
			return err
		}
		if before.id() == m.id() {
			return nil
		}
		return gone(before.remove(c))
	},
	remove: func(c *call, m objectModel) error { return m.remove(c) },
	imported: func(id string) (objectModel, error) {
		parts := strings.Split(id, "/")
		m := objectModel{}
		switch len(parts) {
		case 2:
			m.Kind, m.Name = types.StringValue(parts[0]), types.StringValue(parts[1])
		case 3:
			m.Kind, m.Namespace, m.Name = types.StringValue(parts[0]), types.StringValue(parts[1]), types.StringValue(parts[2])
		default:
			return m, errors.New("write KIND/NAMESPACE/NAME, or KIND/NAME for kinds without namespace")
		}
		return m, nil
	},
	planned: func(c *call, before *objectModel, config tfsdk.Config, plan *tfsdk.Plan) []path.Path {
		var m objectModel
		if c.told.Append(config.Get(c, &m)...); c.told.HasError() {
			return nil
		}
		trial, err := m.apply(c, true)
		if code := status.Code(err); err != nil {
			// What else fails now may be so because of what is made before: it is told when it is stored.
			if code == codes.InvalidArgument {
				c.told.AddAttributeError(path.Root("manifest"), "The controller does not take this object", reason(err))
			}
			return nil
		}
		m.named(trial.GetObject())
		for name, value := range map[string]types.String{"kind": m.Kind, "namespace": m.Namespace, "name": m.Name} {
			c.told.Append(plan.SetAttribute(c, path.Root(name), value)...)
		}
		if before != nil && before.id() != m.id() {
			return []path.Path{path.Root("kind"), path.Root("namespace"), path.Root("name")}
		}
		return nil
	},
}

func (m objectModel) called() string {
	if name := m.Name.ValueString(); name != "" {
		return m.Kind.ValueString() + " " + strings.TrimPrefix(m.Namespace.ValueString()+"/"+name, "/")
	}
	return "the object"
}

func (m objectModel) id() string {
	return strings.ReplaceAll(m.Kind.ValueString()+"/"+m.Namespace.ValueString()+"/"+m.Name.ValueString(), "//", "/")
}

func (m objectModel) ref() *trestlev1.ObjectRef {
	return &trestlev1.ObjectRef{Kind: m.Kind.ValueString(), Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString()}
}

func (m *objectModel) named(ref *trestlev1.ObjectRef) {
	m.Kind, m.Namespace, m.Name = types.StringValue(ref.GetKind()), textOf(ref.GetNamespace()), types.StringValue(ref.GetName())
}

func (m objectModel) apply(c *call, dry bool, options ...grpc.CallOption) (*trestlev1.Applied, error) {
	document, err := oneDocument(m.Manifest.ValueString())
	if err != nil {
		return nil, err
	}
	answer, err := c.Objects.ApplyObjects(c, &trestlev1.ApplyObjectsRequest{Documents: [][]byte{document}, DryRun: dry}, options...)
	if err != nil {
		return nil, err
	}
	return answer.GetApplied()[0], nil
}

func (m objectModel) store(c *call) error {
	var header metadata.MD
	if _, err := m.apply(c, false, grpc.Header(&header)); err != nil {
		return err
	}
	if m.Enforced.ValueBool() {
		if err := c.WaitEnforced(c, trestle.ChangesOf(header)); err != nil {
			return halfDone{err}
		}
	}
	return nil
}

func (m objectModel) remove(c *call) error {
	return second(c.Objects.DeleteObjects(c, &trestlev1.DeleteObjectsRequest{Objects: []*trestlev1.ObjectRef{m.ref()}}))
}

// same asks the controller whether storing what is known would change anything: it knows what it fills in by itself.
func (m objectModel) same(c *call) (bool, error) {
	trial, err := m.apply(c, true)
	if err != nil {
		// What was taken once and is not any more differs from what is there.
		if status.Code(err) == codes.InvalidArgument {
			return false, nil
		}
		return false, err
	}
	return trial.GetOutcome() == trestlev1.Outcome_OUTCOME_UNCHANGED || trial.GetDifference() == "", nil
}

// oneDocument is one object as JSON.
func oneDocument(text string) ([]byte, error) {
	documents, err := trestle.Documents([]byte(text))
	switch {
	case err != nil:
		return nil, err
	case len(documents) != 1:
		return nil, errors.New("one document is one trestle_object; for_each makes several")
	}
	return documents[0], nil
}

// essence is a stored document as somebody would have written it.
func essence(document []byte) (string, error) {
	var object map[string]any
	if err := json.Unmarshal(document, &object); err != nil {
		return "", err
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "uid")
		delete(metadata, "generation")
	}
	written, err := yaml.Marshal(object)
	return string(written), err
}

type objectLook struct {
	Kind      types.String `tfsdk:"kind"`
	Namespace types.String `tfsdk:"namespace"`
	Name      types.String `tfsdk:"name"`
	Document  types.String `tfsdk:"document"`
}

var objectSource = source[objectLook]{
	name: "object",
	schema: dataschema.Schema{
		Description: "An object as it is stored.",
		Attributes: map[string]dataschema.Attribute{
			"kind": asked("As `trestle get` names it: `NetworkPolicy`, `AntreaNetworkPolicy`, `Pod`, …"), "namespace": maybe("Absent for kinds without."),
			"name": asked("Its name."), "document": told("The object as JSON; jsondecode() reads it."),
		},
	},
	read: func(c *call, m *objectLook) error {
		stored, err := c.Objects.GetObject(c, &trestlev1.ObjectRef{Kind: m.Kind.ValueString(), Namespace: m.Namespace.ValueString(), Name: m.Name.ValueString()})
		m.Document = types.StringValue(string(stored.GetDocument()))
		return err
	},
}

type policiesLook struct {
	Policies []policyOfAll `tfsdk:"policies"`
}

type policyOfAll struct {
	Kind      types.String `tfsdk:"kind"`
	Namespace types.String `tfsdk:"namespace"`
	Name      types.String `tfsdk:"name"`
	Phase     types.String `tfsdk:"phase"`
	Span      types.Int64  `tfsdk:"span"`
	Problems  types.List   `tfsdk:"problems"`
}

var policiesSource = source[policiesLook]{
	name: "policies",
	schema: dataschema.Schema{
		Description: "All policies and what they come to.",
		Attributes: map[string]dataschema.Attribute{"policies": toldEach("Sorted by kind, namespace and name.", map[string]dataschema.Attribute{
			"kind": told("Its kind."), "namespace": told("Its namespace; null for kinds without."), "name": told("Its name."),
			"phase": told("`Pending`, `Realizing`, `Realized` or `Failed`."), "span": toldNumber("In how many places it is to be enforced."),
			"problems": toldTexts("What cannot be enforced as written: the policy denies what that covers."),
		})},
	},
	read: func(c *call, m *policiesLook) error {
		answer, err := c.Policies.ListPolicies(c, &trestlev1.ListPoliciesRequest{})
		m.Policies = []policyOfAll{}
		for _, policy := range answer.GetPolicies() {
			var problems []string
			for _, problem := range policy.GetProblems() {
				problems = append(problems, problem.GetPath()+": "+problem.GetMessage())
			}
			for _, failure := range policy.GetFailures() {
				problems = append(problems, failure.GetNode()+": "+failure.GetMessage())
			}
			m.Policies = append(m.Policies, policyOfAll{types.StringValue(policy.GetKind()), textOf(policy.GetNamespace()), types.StringValue(policy.GetName()),
				types.StringValue(policy.GetPhase()), types.Int64Value(int64(policy.GetSpan())), listOf(problems)})
		}
		return err
	},
}
