package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// source is one kind of thing that Terraform looks at: what it has, and the call that reads it. M is its attributes.
type source[M any] struct {
	name   string
	schema schema.Schema
	rules  []datasource.ConfigValidator
	read   func(*call, *M) error
}

type look[M any] struct {
	source[M]
	controller *controller
}

func looked[M any](at source[M]) func() datasource.DataSource {
	return func() datasource.DataSource { return &look[M]{source: at} }
}

func (l *look[M]) Metadata(_ context.Context, _ datasource.MetadataRequest, answer *datasource.MetadataResponse) {
	answer.TypeName = "trestle_" + l.name
}

func (l *look[M]) Schema(_ context.Context, _ datasource.SchemaRequest, answer *datasource.SchemaResponse) {
	answer.Schema = l.schema
}

func (l *look[M]) ConfigValidators(context.Context) []datasource.ConfigValidator { return l.rules }

func (l *look[M]) Configure(_ context.Context, request datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	l.controller, _ = request.ProviderData.(*controller)
}

func (l *look[M]) Read(ctx context.Context, request datasource.ReadRequest, answer *datasource.ReadResponse) {
	var asked M
	answer.Diagnostics.Append(request.Config.Get(ctx, &asked)...)
	if answer.Diagnostics.HasError() {
		return
	}
	ctx, done := context.WithTimeout(ctx, l.controller.timeout)
	defer done()
	if err := l.read(&call{ctx, l.controller, &answer.Diagnostics}, &asked); err != nil {
		answer.Diagnostics.AddError("Cannot read trestle_"+l.name, reason(err))
		return
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, asked)...)
}

// Attributes of sources: what is asked for, and what is told.

func asked(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, Description: description}
}

func maybe(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Description: description}
}

func told(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Description: description}
}

func toldNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{Computed: true, Description: description}
}

func toldBool(description string) schema.BoolAttribute {
	return schema.BoolAttribute{Computed: true, Description: description}
}

func toldTexts(description string) schema.ListAttribute {
	return schema.ListAttribute{ElementType: types.StringType, Computed: true, Description: description}
}

func toldMap(description string) schema.MapAttribute {
	return schema.MapAttribute{ElementType: types.StringType, Computed: true, Description: description}
}

// toldEach is a list of things.
func toldEach(description string, attributes map[string]schema.Attribute) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{Computed: true, Description: description, NestedObject: schema.NestedAttributeObject{Attributes: attributes}}
}
