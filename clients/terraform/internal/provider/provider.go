// Package provider is Trestle for Terraform. In: what a configuration says of tags, rules, resources, links, policies and so on. Out: calls
// to one controller, through the Go client. It holds nothing between calls: what is so is read from the controller, what is wanted is
// Terraform's.
//
// Each kind of thing is one value (kind.go, source.go) in a file of its own. Not here: decisions. The controller validates, plans and
// compares; what it refuses is told in its words.
package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	trestle "trestle.dev/clients/go"
)

const defaultTimeout = time.Hour

// controller is where calls go, and how long one may take with all that it waits for.
type controller struct {
	*trestle.Client
	timeout time.Duration
}

type trestleProvider struct{ version string }

// New makes the provider of a version.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &trestleProvider{version} }
}

func (p *trestleProvider) Metadata(_ context.Context, _ provider.MetadataRequest, answer *provider.MetadataResponse) {
	answer.TypeName = "trestle"
	answer.Version = p.version
}

type providerModel struct {
	Context   types.String `tfsdk:"context"`
	Server    types.String `tfsdk:"server"`
	CAFile    types.String `tfsdk:"ca_file"`
	Token     types.String `tfsdk:"token"`
	TokenFile types.String `tfsdk:"token_file"`
	Cert      types.String `tfsdk:"cert_file"`
	Key       types.String `tfsdk:"key_file"`
	Timeout   types.String `tfsdk:"timeout"`
}

func (p *trestleProvider) Schema(_ context.Context, _ provider.SchemaRequest, answer *provider.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, Description: description}
	}
	token := text("The bearer token itself. Better a file: what stands here is easily committed.")
	token.Sensitive = true
	answer.Schema = schema.Schema{
		Description: "Trestle: who may talk to whom. Without arguments it is the controller of the command line's context.",
		Attributes: map[string]schema.Attribute{
			"context":    text("The context file that `trestle up` wrote. Else TRESTLE_CONTEXT, or the one in the user's configuration directory."),
			"server":     text("URL of the controller's gRPC listener, as in https://127.0.0.1:8081. Else TRESTLE_SERVER, or the context's. A server that is named is not given the context's token."),
			"ca_file":    text("PEM file of the CA that the controller's certificate is from. Else TRESTLE_CA, or the context's."),
			"token":      token,
			"token_file": text("File that holds the bearer token; the role operator is enough, but for tokens to join and for taking hosts away. Else TRESTLE_TOKEN_FILE, or the context's."),
			"cert_file":  text("PEM file of a client certificate, instead of a token. Else TRESTLE_CERT."),
			"key_file":   text("PEM file of its key. Else TRESTLE_KEY."),
			"timeout":    text("How long one change may take with all that it waits for, as in 30m (default: 1h). Afterwards Terraform waits no longer; the controller goes on."),
		},
	}
}

func (p *trestleProvider) Configure(ctx context.Context, request provider.ConfigureRequest, answer *provider.ConfigureResponse) {
	var given providerModel
	answer.Diagnostics.Append(request.Config.Get(ctx, &given)...)
	if answer.Diagnostics.HasError() {
		return
	}
	for name, value := range map[string]types.String{
		"context": given.Context, "server": given.Server, "ca_file": given.CAFile, "token": given.Token,
		"token_file": given.TokenFile, "cert_file": given.Cert, "key_file": given.Key, "timeout": given.Timeout,
	} {
		if value.IsUnknown() {
			answer.Diagnostics.AddAttributeError(path.Root(name), "Not known yet",
				"The provider must know how to reach the controller before anything can be planned. Apply what this value comes from first, with -target.")
		}
	}
	timeout := defaultTimeout
	if written := given.Timeout.ValueString(); written != "" {
		parsed, err := time.ParseDuration(written)
		if err != nil || parsed <= 0 {
			answer.Diagnostics.AddAttributeError(path.Root("timeout"), "Not a time", "Write it as in 90s, 30m or 1h30m.")
		}
		timeout = parsed
	}
	if answer.Diagnostics.HasError() {
		return
	}
	config, err := trestle.Source{
		Context: given.Context.ValueString(), Server: given.Server.ValueString(), CAFile: given.CAFile.ValueString(),
		Token: given.Token.ValueString(), TokenFile: given.TokenFile.ValueString(),
		Cert: given.Cert.ValueString(), Key: given.Key.ValueString(),
	}.Config()
	if err != nil {
		answer.Diagnostics.AddError("No controller", err.Error())
		return
	}
	client, err := trestle.Connect(config)
	if err != nil {
		answer.Diagnostics.AddError("No controller", err.Error())
		return
	}
	known := &controller{client, timeout}
	answer.ResourceData, answer.DataSourceData = known, known
}

func (p *trestleProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		made(hostKind), made(joinTokenKind), made(linkKind), made(namespaceKind), made(objectKind),
		made(permissionKind), made(resourceKind), made(ruleKind), made(tagKind), made(ticketKind),
	}
}

func (p *trestleProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		looked(cloudsSource), looked(explainSource), looked(hostSource), looked(hostsSource), looked(linksSource), looked(objectSource),
		looked(permissionsSource), looked(policiesSource), looked(resourceSource), looked(resourcesSource), looked(rulesSource),
		looked(tagSource), looked(tagsSource), looked(ticketsSource),
	}
}
