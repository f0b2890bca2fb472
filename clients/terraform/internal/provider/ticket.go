package provider

import (
	"fmt"
	"time"

	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/mapplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"trestle.dev/clients/go/pb/trestlev1"
)

// What is handed out once and spent stays in the state when it is spent: it has done its work, and a new one would be a new key to the door.
const spent = "It stays as it is when it is used, revoked or expired; `terraform apply -replace` makes a new one."

func once(description string) schema.StringAttribute {
	attribute := optional(description)
	attribute.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplace()}
	return attribute
}

func onceNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{Optional: true, Description: description, PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()}}
}

func onceTexts(description string) schema.SetAttribute {
	attribute := setOfTexts(description)
	attribute.PlanModifiers = []planmodifier.Set{setplanmodifier.RequiresReplace()}
	return attribute
}

func secret(description string) schema.StringAttribute {
	attribute := filled(description + " It is in Terraform's state: guard that.")
	attribute.Sensitive = true
	return attribute
}

type ticketModel struct {
	Lifetime   types.String `tfsdk:"lifetime"`
	Limit      types.String `tfsdk:"limit"`
	Sources    types.Set    `tfsdk:"sources"`
	Operations types.Int64  `tfsdk:"operations_per_second"`
	Bytes      types.Int64  `tfsdk:"bytes_per_second"`
	ID         types.String `tfsdk:"id"`
	Text       types.String `tfsdk:"text"`
	ExpiresAt  types.String `tfsdk:"expires_at"`
	State      types.String `tfsdk:"state"`
	Consumer   types.String `tfsdk:"consumer"`
}

func lifetimeAttribute(description string) schema.StringAttribute {
	attribute := once(description)
	attribute.Validators = append(attribute.Validators, checked(seconds))
	return attribute
}

var ticketKind = kind[ticketModel]{
	name: "ticket",
	schema: schema.Schema{
		Description: "An onboarding ticket: who shows it becomes a consumer of the storage, within its limit. " + spent,
		Attributes: map[string]schema.Attribute{
			"lifetime":              lifetimeAttribute("How long it is good, as in 12h (default: 48h)."),
			"limit":                 once("The most a consumer may be granted with it, as in 100Gi."),
			"sources":               onceTexts("The addresses and prefixes that its consumer may come from."),
			"operations_per_second": onceNumber("How many reads, writes, flushes and trims its consumer is served in a second."),
			"bytes_per_second":      onceNumber("How many bytes its consumer reads and writes in a second."),
			"id":                    filled("Its id."),
			"text":                  secret("The ticket itself, to be handed over like a password."),
			"expires_at":            filled("Until when it is good, RFC 3339."),
			"state":                 schema.StringAttribute{Computed: true, Description: "`valid`, `used`, `revoked`, `expired`, or `absent`: the controller knows nothing of it."},
			"consumer":              schema.StringAttribute{Computed: true, Description: "The consumer that came with it."},
		},
	},
	called: func(m ticketModel) string { return "ticket " + m.ID.ValueString() },
	create: func(c *call, m *ticketModel) error {
		lifetime, err := seconds(m.Lifetime.ValueString())
		if err != nil {
			return err
		}
		request := &trestlev1.CreateTicketRequest{LifetimeSeconds: lifetime, Limit: m.Limit.ValueString(), Sources: stringsOf(m.Sources)}
		if !m.Operations.IsNull() || !m.Bytes.IsNull() {
			request.Rates = &trestlev1.Rates{Operations: count(m.Operations), Bytes: count(m.Bytes)}
		}
		answer, err := c.Storage.CreateTicket(c, request)
		if err != nil {
			return err
		}
		m.Text = types.StringValue(answer.GetText())
		m.is(answer.GetTicket())
		return nil
	},
	read: func(c *call, m *ticketModel) (bool, error) {
		answer, err := c.Storage.ListTickets(c, &trestlev1.ListTicketsRequest{})
		if err != nil {
			return false, err
		}
		for _, ticket := range answer.GetTickets() {
			if ticket.GetId() == m.ID.ValueString() {
				m.is(ticket)
				return true, nil
			}
		}
		m.State = types.StringValue("absent")
		return true, nil
	},
	remove: func(c *call, m ticketModel) error {
		if state := m.State.ValueString(); state != "valid" {
			return nil
		}
		return second(c.Storage.RevokeTicket(c, &trestlev1.RevokeTicketRequest{Id: m.ID.ValueString()}))
	},
}

func (m *ticketModel) is(ticket *trestlev1.Ticket) {
	m.ID, m.State, m.Consumer = types.StringValue(ticket.GetId()), types.StringValue(ticket.GetState()), textOf(ticket.GetConsumer())
	m.ExpiresAt = types.StringValue(time.Unix(int64(ticket.GetExpiresAt()), 0).UTC().Format(time.RFC3339))
}

// seconds of a time as in 90s or 12h; of nothing, 0.
func seconds(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < time.Second {
		return 0, fmt.Errorf("%q is no time of a second or more: write it as in 90s, 12h or 1h30m", text)
	}
	return uint64(parsed / time.Second), nil
}

func duration(seconds uint32) string { return (time.Duration(seconds) * time.Second).String() }

func count(number types.Int64) *uint64 {
	if number.IsNull() {
		return nil
	}
	value := uint64(number.ValueInt64())
	return &value
}

type ticketsLook struct {
	Tickets []ticketOfAll `tfsdk:"tickets"`
}

type ticketOfAll struct {
	ID        types.String `tfsdk:"id"`
	State     types.String `tfsdk:"state"`
	ExpiresAt types.String `tfsdk:"expires_at"`
	Consumer  types.String `tfsdk:"consumer"`
}

var ticketsSource = source[ticketsLook]{
	name: "tickets",
	schema: dataschema.Schema{
		Description: "All onboarding tickets, without their text.",
		Attributes: map[string]dataschema.Attribute{"tickets": toldEach("The tickets.", map[string]dataschema.Attribute{
			"id": told("Its id."), "state": told("`valid`, `used`, `revoked` or `expired`."), "expires_at": told("RFC 3339."), "consumer": told("Who came with it."),
		})},
	},
	read: func(c *call, m *ticketsLook) error {
		answer, err := c.Storage.ListTickets(c, &trestlev1.ListTicketsRequest{})
		m.Tickets = []ticketOfAll{}
		for _, ticket := range answer.GetTickets() {
			var as ticketModel
			as.is(ticket)
			m.Tickets = append(m.Tickets, ticketOfAll{as.ID, as.State, as.ExpiresAt, as.Consumer})
		}
		return err
	},
}

type joinTokenModel struct {
	Uses     types.Int64  `tfsdk:"uses"`
	Lifetime types.String `tfsdk:"lifetime"`
	Names    types.String `tfsdk:"names"`
	Tags     types.Set    `tfsdk:"tags"`
	Labels   types.Map    `tfsdk:"labels"`
	ID       types.String `tfsdk:"id"`
	Token    types.String `tfsdk:"token"`
	Servers  types.List   `tfsdk:"servers"`
	State    types.String `tfsdk:"state"`
}

var joinTokenKind = kind[joinTokenModel]{
	name: "join_token",
	schema: schema.Schema{
		Description: "A token with which machines join as hosts, for their user data. " + spent + " Needs the role admin.",
		Attributes: map[string]schema.Attribute{
			"uses":     onceNumber("How many machines may join with it (default: one)."),
			"lifetime": lifetimeAttribute("How long it is good, as in 30m (default: 1h)."),
			"names":    once("Which names they may have; `*` stands for any characters."),
			"tags":     onceTexts("The tags they are made members of. Those that are not there are made."),
			"labels": schema.MapAttribute{ElementType: types.StringType, Optional: true, Description: "What they are labelled with.",
				PlanModifiers: []planmodifier.Map{mapplanmodifier.RequiresReplace()}},
			"id":    filled("Its id."),
			"token": secret("The token itself."),
			"servers": schema.ListAttribute{ElementType: types.StringType, Computed: true, Description: "URLs by which the controller's certificate knows it, for `trestle join`.",
				PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()}},
			"state": schema.StringAttribute{Computed: true, Description: "`valid`, or `absent`: used up, revoked or expired."},
		},
	},
	called: func(m joinTokenModel) string { return "join token " + m.ID.ValueString() },
	create: func(c *call, m *joinTokenModel) error {
		request := &trestlev1.CreateJoinTokenRequest{Uses: uint32(m.Uses.ValueInt64()), Names: m.Names.ValueString(), Tags: stringsOf(m.Tags), Labels: textsOf(m.Labels)}
		lifetime, err := seconds(m.Lifetime.ValueString())
		if err != nil {
			return err
		}
		if lifetime > 0 {
			request.TtlSeconds = &lifetime
		}
		answer, err := c.Access.CreateJoinToken(c, request)
		if err != nil {
			return err
		}
		m.ID, m.Token, m.Servers = types.StringValue(answer.GetInfo().GetId()), types.StringValue(answer.GetToken()), listOf(answer.GetServers())
		m.State = types.StringValue("valid")
		return nil
	},
	read: func(c *call, m *joinTokenModel) (bool, error) {
		answer, err := c.Access.ListTokens(c, &trestlev1.ListTokensRequest{})
		m.State = types.StringValue("absent")
		for _, token := range answer.GetTokens() {
			expired := token.ExpiresAt != nil && token.GetExpiresAt() <= time.Now().Unix()
			if token.GetId() == m.ID.ValueString() && token.GetJoin().GetUsesLeft() > 0 && !expired {
				m.State = types.StringValue("valid")
			}
		}
		return true, err
	},
	remove: func(c *call, m joinTokenModel) error {
		return second(c.Access.RevokeToken(c, &trestlev1.RevokeTokenRequest{Id: m.ID.ValueString()}))
	},
}
