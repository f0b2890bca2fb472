package provider

import (
	"errors"
	"strings"

	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/trestlev1"
)

var errAway = errors.New("it was made, and somebody has taken it away since")

type linkModel struct {
	A types.String `tfsdk:"a"`
	B types.String `tfsdk:"b"`
}

var linkKind = kind[linkModel]{
	name: "link",
	schema: schema.Schema{
		Description: "A VPN link between two sites that stays whether or not a rule needs it. Links that rules need are made and go by themselves. Making one takes as long as the clouds' gateways take: up to three quarters of an hour.",
		Attributes: map[string]schema.Attribute{
			"a": fixed("One site: NAMESPACE.CLOUD."),
			"b": fixed("The other site: NAMESPACE.CLOUD."),
		},
	},
	called: func(m linkModel) string { return "link " + m.id() },
	create: func(c *call, m *linkModel) error {
		there, err := m.find(c)
		switch {
		case err != nil:
			return err
		case there != nil && there.GetPinned():
			return existing("link "+m.id(), "trestle_link", m.id())
		}
		outcome, err := c.Orchestrator.CreateLink(c, m.request())
		if err != nil {
			return err
		}
		if err := c.WaitJob(c, outcome.GetJob()); err != nil {
			return halfDone{err}
		}
		return nil
	},
	read: func(c *call, m *linkModel) (bool, error) {
		now, err := m.find(c)
		if said := now.GetMessage(); said != "" {
			c.warn("link "+m.id()+" is "+now.GetState(), said)
		}
		// One that only rules need is not what this configuration asked for.
		return now.GetPinned(), err
	},
	remove: func(c *call, m linkModel) error {
		outcome, err := c.Orchestrator.DeleteLink(c, m.request())
		if err != nil {
			return err
		}
		return c.WaitJob(c, outcome.GetJob())
	},
	imported: func(id string) (linkModel, error) {
		a, b, ok := strings.Cut(id, "+")
		if !ok || a == "" || b == "" {
			return linkModel{}, errors.New("write NAMESPACE.CLOUD+NAMESPACE.CLOUD")
		}
		return linkModel{types.StringValue(a), types.StringValue(b)}, nil
	},
}

func (m linkModel) id() string { return m.A.ValueString() + "+" + m.B.ValueString() }

func (m linkModel) request() *trestlev1.LinkRequest {
	return &trestlev1.LinkRequest{A: m.A.ValueString(), B: m.B.ValueString()}
}

// find is the link as it is now, whichever end is named first; nil if there is none.
func (m linkModel) find(c *call) (*trestlev1.LinkInfo, error) {
	answer, err := c.Orchestrator.ListLinks(c, &trestlev1.ListLinksRequest{})
	a, b := m.A.ValueString(), m.B.ValueString()
	for _, link := range answer.GetLinks() {
		one, other := link.GetA().GetSite(), link.GetB().GetSite()
		if (one == a && other == b) || (one == b && other == a) {
			return link, nil
		}
	}
	return nil, err
}

type linksLook struct {
	Links []linkOfAll `tfsdk:"links"`
}

type linkOfAll struct {
	A         types.String `tfsdk:"a"`
	B         types.String `tfsdk:"b"`
	State     types.String `tfsdk:"state"`
	Pinned    types.Bool   `tfsdk:"pinned"`
	Message   types.String `tfsdk:"message"`
	Tunnels   types.Int64  `tfsdk:"tunnels"`
	TunnelsUp types.Int64  `tfsdk:"tunnels_up"`
}

var linksSource = source[linksLook]{
	name: "links",
	schema: dataschema.Schema{
		Description: "All links between clouds.",
		Attributes: map[string]dataschema.Attribute{"links": toldEach("The links.", map[string]dataschema.Attribute{
			"a": told("One site."), "b": told("The other site."), "state": told("How far it is."), "pinned": toldBool("It stays whether or not a rule needs it."),
			"message": told("The last trouble with it."), "tunnels": toldNumber("Tunnels at one end; null where its cloud does not say."),
			"tunnels_up": toldNumber("Those of them that are up."),
		})},
	},
	read: func(c *call, m *linksLook) error {
		answer, err := c.Orchestrator.ListLinks(c, &trestlev1.ListLinksRequest{})
		m.Links = []linkOfAll{}
		for _, link := range answer.GetLinks() {
			tunnels, up := types.Int64Null(), types.Int64Null()
			if end := link.GetA().GetStatus(); end != nil {
				tunnels, up = types.Int64Value(int64(end.GetTunnels())), types.Int64Value(int64(end.GetTunnelsUp()))
			}
			m.Links = append(m.Links, linkOfAll{types.StringValue(link.GetA().GetSite()), types.StringValue(link.GetB().GetSite()),
				types.StringValue(link.GetState()), types.BoolValue(link.GetPinned()), textOf(link.GetMessage()), tunnels, up})
		}
		return err
	},
}

type cloudsLook struct {
	Clouds []cloudOfAll `tfsdk:"clouds"`
}

type cloudOfAll struct {
	Name      types.String `tfsdk:"name"`
	Plugin    types.String `tfsdk:"plugin"`
	State     types.String `tfsdk:"state"`
	Message   types.String `tfsdk:"message"`
	Resources types.Int64  `tfsdk:"resources"`
}

var cloudsSource = source[cloudsLook]{
	name: "clouds",
	schema: dataschema.Schema{
		Description: "All clouds of the controller, also those that cannot be asked, and why.",
		Attributes: map[string]dataschema.Attribute{"clouds": toldEach("The clouds.", map[string]dataschema.Attribute{
			"name": told("Its name."), "plugin": told("What its plugin is, and where."), "state": told("`waiting`, `ready` or `failing`."),
			"message": told("Why it is not ready."), "resources": toldNumber("How many resources are wanted in it."),
		})},
	},
	read: func(c *call, m *cloudsLook) error {
		answer, err := c.Orchestrator.ListClouds(c, &trestlev1.ListCloudsRequest{})
		m.Clouds = []cloudOfAll{}
		for _, cloud := range answer.GetClouds() {
			m.Clouds = append(m.Clouds, cloudOfAll{types.StringValue(cloud.GetName()), types.StringValue(cloud.GetPlugin()),
				types.StringValue(cloud.GetState()), textOf(cloud.GetMessage()), types.Int64Value(int64(cloud.GetResources()))})
		}
		return err
	},
}
