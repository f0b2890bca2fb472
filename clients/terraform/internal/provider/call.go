package provider

import (
	"context"
	"errors"
	"net/netip"
	"sort"
	"strings"
	"unicode"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	trestle "trestle.dev/clients/go"
)

// call is one operation on the controller, and what is told of it.
type call struct {
	context.Context
	*controller
	told *diag.Diagnostics
}

func (c *call) warn(summary, detail string) { c.told.AddWarning(summary, detail) }

// halfDone says that something was made although not all of it came to be: it is kept, and made anew by the next apply.
type halfDone struct{ error }

func (h halfDone) Unwrap() error { return h.error }

// existing refuses to take over what somebody else has made.
func existing(what, kind, id string) error {
	return errors.New(what + " is there already, and was not made by this configuration. To go on with what is there: terraform import " + kind + ".NAME '" + id + "'")
}

// gone makes what is not there any more nothing to complain of, when it was to be deleted.
func gone(err error) error {
	if trestle.IsAbsent(err) {
		return nil
	}
	return err
}

// found tells what is not there from what could not be asked.
func found(err error) (bool, error) {
	if trestle.IsAbsent(err) {
		return false, nil
	}
	return err == nil, err
}

// reason is an error in the controller's words, with what to look at where it did not answer.
func reason(err error) string {
	said, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	text := said.Message() + " (" + canonical(said.Code()) + ")"
	var wrapped interface{ GRPCStatus() *status.Status }
	if _, direct := err.(interface{ GRPCStatus() *status.Status }); !direct && errors.As(err, &wrapped) {
		text = err.Error()
	}
	switch said.Code() {
	case codes.Unavailable:
		text += "\n\nIs the controller up? `trestle doctor` says what is in the way."
	case codes.Unauthenticated:
		text += "\n\nThe token or certificate that the provider was given is not good there."
	}
	return text
}

// canonical is a code as everything else writes it: NOT_FOUND.
func canonical(code codes.Code) string {
	var text strings.Builder
	for place, letter := range code.String() {
		if place > 0 && unicode.IsUpper(letter) {
			text.WriteByte('_')
		}
		text.WriteRune(unicode.ToUpper(letter))
	}
	return text.String()
}

// strings of a set or list; none if it is null.
func stringsOf(values interface{ Elements() []attr.Value }) []string {
	var texts []string
	for _, value := range values.Elements() {
		texts = append(texts, value.(types.String).ValueString())
	}
	sort.Strings(texts)
	return texts
}

// setOf is a set of strings; of none, null.
func setOf(texts []string) types.Set {
	if len(texts) == 0 {
		return types.SetNull(types.StringType)
	}
	return types.SetValueMust(types.StringType, valuesOf(texts))
}

func listOf(texts []string) types.List { return types.ListValueMust(types.StringType, valuesOf(texts)) }

func valuesOf(texts []string) []attr.Value {
	values := make([]attr.Value, len(texts))
	for place, text := range texts {
		values[place] = types.StringValue(text)
	}
	return values
}

// mapOf is a map of strings; of none, null.
func mapOf(texts map[string]string) types.Map {
	if len(texts) == 0 {
		return types.MapNull(types.StringType)
	}
	values := make(map[string]attr.Value, len(texts))
	for key, text := range texts {
		values[key] = types.StringValue(text)
	}
	return types.MapValueMust(types.StringType, values)
}

func textsOf(values types.Map) map[string]string {
	texts := make(map[string]string, len(values.Elements()))
	for key, value := range values.Elements() {
		texts[key] = value.(types.String).ValueString()
	}
	return texts
}

// textOf is a text; of an empty one, null.
func textOf(text string) types.String {
	if text == "" {
		return types.StringNull()
	}
	return types.StringValue(text)
}

// plain is an address or prefix as the controller writes it, and any other text as it is.
func plain(text string) string {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.String()
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix.IsSingleIP() {
			return prefix.Addr().String()
		}
		return prefix.String()
	}
	return text
}

// spelled is what is there now, each in the spelling it had before if it is the same: 10.0.0.5/32 is 10.0.0.5.
func spelled(before, now []string) []string {
	known := make(map[string]string, len(before))
	for _, text := range before {
		known[plain(text)] = text
	}
	texts := make([]string, 0, len(now))
	for _, text := range now {
		if as, ok := known[plain(text)]; ok {
			text = as
		}
		texts = append(texts, text)
	}
	return texts
}
