// A whole flow with the client that openapi-generator makes of the document: `java GeneratedClient BASE_URL` prints what it saw.
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.CampaignsApi;
import org.openapitools.client.api.ContactsApi;
import org.openapitools.client.api.ControlPlaneApi;
import org.openapitools.client.model.*;

public class GeneratedClient {
  static ApiClient clientOf(String url) {
    var client = new ApiClient();
    client.updateBaseUri(url);
    return client;
  }

  public static void main(String[] arguments) throws Exception {
    var server = new ControlPlaneApi(clientOf(arguments[0]));
    var strict = new BehaviourBody().preset(BehaviourBody.PresetEnum.STRICT);
    for (var body : new SandboxBody[] {null, new SandboxBody(), new SandboxBody().seed(3), new SandboxBody().behaviour(strict)})
      new ControlPlaneApi(clientOf(server.createSandbox(body).getUrl())).reset();

    var campaign = new WorldCampaign().id("camp_1").status("live").addStepsItem(new WorldCampaignStepsInner("A|B"));
    var space = new WorldWorkspace().id("space_1").addCampaignsItem(campaign);
    var world = new World().addWorkspacesItem(space).ownerKeys(Map.of("key_1", List.of("space_1")));
    var url = server.createSandbox(new SandboxBody().world(world).expiresAfter(java.math.BigDecimal.valueOf(60))).getUrl();
    var control = new ControlPlaneApi(clientOf(url));
    var contacts = new ContactsApi(clientOf(url));

    var unavailable = new StatusFault().name(StatusFault.NameEnum.STATUS).code(503);
    var script = new FaultScriptBody().operation(OperationName.CREATE_CONTACT).addFaultsItem(new Fault(unavailable));
    System.out.println(control.scriptFaults(script).getUnfired());
    var options = new UploadOptions().duplicates(UploadOptions.DuplicatesEnum.SKIP).strictValidation(false).campaign("camp_1");
    var ann = new CreateContact().ownerKey("key_1").workspace("space_1").email("ann@company.example").uploadOptions(options);
    try {
      contacts.createContact(ann);
    } catch (ApiException error) {
      System.out.println(error.getCode());
    }
    System.out.println(contacts.createContact(ann).getStatus());

    System.out.println(control.advance(new AdvanceBody().days(java.math.BigDecimal.valueOf(2))).getUnix());
    System.out.println(control.changeBehaviour(new BehaviourBody().pastEnd(BehaviourBody.PastEndEnum.CLAMP)).getPastEnd());
    System.out.println(new CampaignsApi(clientOf(url)).listCampaigns("space_1", 9, 10).getData().get(0).getContacts());
    for (var entry : control.listRequests(OperationName.CREATE_CONTACT, null).getRequests())
      System.out.println(entry.getMethod() + " " + entry.getTarget() + " " + entry.getStatus() + " " + entry.getFault());

    control.putWorld(control.getWorld()); // what is read can be put back, with the state of its simulation
    System.out.println(control.getWorld().getWorkspaces().get(0).getContacts().get(0).getEmail());
    control.describe();
    server.deleteSandbox(url.substring(url.lastIndexOf('/') + 1));
  }
}
