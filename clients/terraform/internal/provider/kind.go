package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// kind is one kind of thing that Terraform makes: what it has, and the calls that make, read, change and take it away. M is its
// attributes.
type kind[M any] struct {
	name   string
	schema schema.Schema
	// What it is called in messages.
	called func(M) string
	rules  []resource.ConfigValidator
	create func(*call, *M) error
	// Brings what is known up to date; false if it is not there any more.
	read func(*call, *M) (bool, error)
	// From what is to what is wanted. Absent: whatever changes is made anew.
	update func(*call, M, *M) error
	remove func(*call, M) error
	// What an id says; `read` does the rest. Absent: it cannot be imported.
	imported func(id string) (M, error)
	// Looks at what is planned, when all that the user wrote is known. `before` is nil for something new.
	planned func(c *call, before *M, config tfsdk.Config, plan *tfsdk.Plan) (replace []path.Path)
}

type thing[M any] struct {
	kind[M]
	controller *controller
}

func made[M any](of kind[M]) func() resource.Resource {
	return func() resource.Resource { return &thing[M]{kind: of} }
}

func (t *thing[M]) Metadata(_ context.Context, _ resource.MetadataRequest, answer *resource.MetadataResponse) {
	answer.TypeName = "trestle_" + t.name
}

func (t *thing[M]) Schema(_ context.Context, _ resource.SchemaRequest, answer *resource.SchemaResponse) {
	answer.Schema = t.schema
}

func (t *thing[M]) ConfigValidators(context.Context) []resource.ConfigValidator { return t.rules }

func (t *thing[M]) Configure(_ context.Context, request resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	t.controller, _ = request.ProviderData.(*controller)
}

func (t *thing[M]) call(ctx context.Context, told *diag.Diagnostics) (*call, context.CancelFunc) {
	ctx, done := context.WithTimeout(ctx, t.controller.timeout)
	return &call{ctx, t.controller, told}, done
}

func (t *thing[M]) Create(ctx context.Context, request resource.CreateRequest, answer *resource.CreateResponse) {
	var wanted M
	answer.Diagnostics.Append(request.Plan.Get(ctx, &wanted)...)
	if answer.Diagnostics.HasError() {
		return
	}
	c, done := t.call(ctx, &answer.Diagnostics)
	defer done()
	err := t.create(c, &wanted)
	var half halfDone
	if err == nil || errors.As(err, &half) {
		answer.Diagnostics.Append(answer.State.Set(ctx, wanted)...)
	}
	t.failed(&answer.Diagnostics, "create", wanted, err)
}

func (t *thing[M]) Read(ctx context.Context, request resource.ReadRequest, answer *resource.ReadResponse) {
	var known M
	answer.Diagnostics.Append(request.State.Get(ctx, &known)...)
	if answer.Diagnostics.HasError() {
		return
	}
	c, done := t.call(ctx, &answer.Diagnostics)
	defer done()
	there, err := t.read(c, &known)
	switch {
	case err != nil:
		t.failed(&answer.Diagnostics, "read", known, err)
	case !there:
		answer.State.RemoveResource(ctx)
	default:
		answer.Diagnostics.Append(answer.State.Set(ctx, known)...)
	}
}

func (t *thing[M]) Update(ctx context.Context, request resource.UpdateRequest, answer *resource.UpdateResponse) {
	var before, wanted M
	answer.Diagnostics.Append(request.State.Get(ctx, &before)...)
	answer.Diagnostics.Append(request.Plan.Get(ctx, &wanted)...)
	if answer.Diagnostics.HasError() {
		return
	}
	c, done := t.call(ctx, &answer.Diagnostics)
	defer done()
	if t.update != nil {
		if err := t.update(c, before, &wanted); err != nil {
			t.failed(&answer.Diagnostics, "change", wanted, err)
			return
		}
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, wanted)...)
}

func (t *thing[M]) Delete(ctx context.Context, request resource.DeleteRequest, answer *resource.DeleteResponse) {
	var known M
	answer.Diagnostics.Append(request.State.Get(ctx, &known)...)
	if answer.Diagnostics.HasError() {
		return
	}
	c, done := t.call(ctx, &answer.Diagnostics)
	defer done()
	t.failed(&answer.Diagnostics, "delete", known, gone(t.remove(c, known)))
}

func (t *thing[M]) ImportState(ctx context.Context, request resource.ImportStateRequest, answer *resource.ImportStateResponse) {
	if t.imported == nil {
		answer.Diagnostics.AddError("It cannot be imported", "What a trestle_"+t.name+" holds is told only when it is made. Make a new one.")
		return
	}
	known, err := t.imported(request.ID)
	if err != nil {
		answer.Diagnostics.AddError("Not an id of a trestle_"+t.name, err.Error())
		return
	}
	c, done := t.call(ctx, &answer.Diagnostics)
	defer done()
	there, err := t.read(c, &known)
	switch {
	case err != nil:
		t.failed(&answer.Diagnostics, "import", known, err)
	case !there:
		answer.Diagnostics.AddError("There is no "+t.called(known), "Nothing of that name is there to import.")
	default:
		answer.Diagnostics.Append(answer.State.Set(ctx, known)...)
	}
}

func (t *thing[M]) ModifyPlan(ctx context.Context, request resource.ModifyPlanRequest, answer *resource.ModifyPlanResponse) {
	if t.planned == nil || t.controller == nil || request.Plan.Raw.IsNull() || !request.Config.Raw.IsFullyKnown() {
		return
	}
	var before *M
	if !request.State.Raw.IsNull() {
		before = new(M)
		answer.Diagnostics.Append(request.State.Get(ctx, before)...)
	}
	if answer.Diagnostics.HasError() {
		return
	}
	c, done := t.call(ctx, &answer.Diagnostics)
	defer done()
	answer.RequiresReplace = append(answer.RequiresReplace, t.planned(c, before, request.Config, &answer.Plan)...)
}

func (t *thing[M]) failed(told *diag.Diagnostics, what string, of M, err error) {
	if err != nil {
		told.AddError(fmt.Sprintf("Cannot %s %s", what, t.called(of)), reason(err))
	}
}

// Attributes that many kinds have.

// fixed is what cannot be changed: another value is another thing.
func fixed(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, Description: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}}
}

// filled is what the controller fills in once.
func filled(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Description: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
}

func optional(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Description: description}
}

// setOfTexts is a set of strings that may be changed.
func setOfTexts(description string) schema.SetAttribute {
	return schema.SetAttribute{ElementType: types.StringType, Optional: true, Description: description}
}
