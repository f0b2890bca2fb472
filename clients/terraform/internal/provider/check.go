package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// written checks a text by the function that reads it.
type written[V any] func(string) (V, error)

// checked is a text that a function reads.
func checked[V any](read func(string) (V, error)) validator.String { return written[V](read) }

func (w written[V]) Description(context.Context) string { return "it can be read" }

func (w written[V]) MarkdownDescription(ctx context.Context) string { return w.Description(ctx) }

func (w written[V]) ValidateString(_ context.Context, request validator.StringRequest, answer *validator.StringResponse) {
	if request.ConfigValue.IsNull() || request.ConfigValue.IsUnknown() {
		return
	}
	if _, err := w(request.ConfigValue.ValueString()); err != nil {
		answer.Diagnostics.AddAttributeError(request.Path, "Not understood", err.Error())
	}
}
