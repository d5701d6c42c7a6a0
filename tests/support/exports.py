"""Headers of contact exports of other tools, and exports of one fictitious person."""

from __future__ import annotations

import csv
import io
from typing import Final

HUBSPOT: Final = (
    "Record ID,First Name,Last Name,Email,Phone Number,Contact owner,Lead Status,Marketing contact status,Create Date,"
    "Associated Company,Job Title,Company Name,Mobile Phone Number,Street Address,City,State/Region,Postal Code,Country/Region,"
    "Website URL,Industry,Lifecycle Stage,Last Activity Date,Original Source,Associated Company IDs,Time Zone,"
    "Unsubscribed from all email"
)
SALESFORCE_REPORT: Final = (
    "Salutation,First Name,Last Name,Title,Mailing Street,Mailing City,Mailing State/Province,Mailing Zip/Postal Code,"
    "Mailing Country,Phone,Mobile,Fax,Email,Account Owner,Account Name"
)
SALESFORCE_LEADS: Final = "Lead Owner,First Name,Last Name,Title,Company / Account,Lead Source,Rating,Street,Email"
SALESFORCE_API: Final = (
    "Id,IsDeleted,MasterRecordId,AccountId,FirstName,LastName,Salutation,Name,OtherStreet,OtherCity,OtherState,OtherPostalCode,"
    "OtherCountry,MailingStreet,MailingCity,MailingState,MailingPostalCode,MailingCountry,Phone,Fax,MobilePhone,HomePhone,"
    "OtherPhone,AssistantPhone,ReportsToId,Email,Title,Department,AssistantName,LeadSource,Birthdate,Description,OwnerId,"
    "CreatedDate,CreatedById,LastModifiedDate,LastModifiedById,SystemModstamp,LastActivityDate,LastCURequestDate,"
    "LastCUUpdateDate,EmailBouncedReason,EmailBouncedDate"
)
APOLLO: Final = (
    "First Name,Last Name,Title,Company,Company Name for Emails,Email,Email Status,Primary Email Source,Email Confidence,"
    "Primary Email Catch-all Status,Primary Email Last Verified At,Seniority,Departments,Contact Owner,Work Direct Phone,"
    "Home Phone,Mobile Phone,Corporate Phone,Other Phone,Stage,Lists,Last Contacted,Account Owner,# Employees,Industry,Keywords,"
    "Person Linkedin Url,Website,Company Linkedin Url,Facebook Url,Twitter Url,City,State,Country,Company Address,Company City,"
    "Company State,Company Country,Company Phone,SEO Description,Technologies,Annual Revenue,Total Funding,Latest Funding,"
    "Latest Funding Amount,Last Raised At,Subsidiary of,Email Sent,Email Open,Email Bounced,Replied,Demoed,"
    "Number of Retail Locations,Apollo Contact Id,Apollo Account Id,Secondary Email,Secondary Email Source,Tertiary Email,"
    "Tertiary Email Source"
)
GOOGLE: Final = (
    "First Name,Middle Name,Last Name,Phonetic First Name,Phonetic Middle Name,Phonetic Last Name,Name Prefix,Name Suffix,"
    "Nickname,File As,Organization Name,Organization Title,Organization Department,Birthday,Notes,Photo,Labels,E-mail 1 - Label,"
    "E-mail 1 - Value,E-mail 2 - Label,E-mail 2 - Value,Phone 1 - Label,Phone 1 - Value,Phone 2 - Label,Phone 2 - Value,"
    "Address 1 - Label,Address 1 - Formatted,Address 1 - Street,Address 1 - City,Address 1 - PO Box,Address 1 - Region,"
    "Address 1 - Postal Code,Address 1 - Country,Address 1 - Extended Address,Relation 1 - Label,Relation 1 - Value,"
    "Website 1 - Label,Website 1 - Value"
)
GOOGLE_BEFORE: Final = (
    "Name,Given Name,Additional Name,Family Name,Yomi Name,Given Name Yomi,Additional Name Yomi,Family Name Yomi,Name Prefix,"
    "Name Suffix,Initials,Nickname,Short Name,Maiden Name,Birthday,Gender,Location,Billing Information,Directory Server,Mileage,"
    "Occupation,Hobby,Sensitivity,Priority,Subject,Notes,Language,Photo,Group Membership,E-mail 1 - Type,E-mail 1 - Value,"
    "Phone 1 - Type,Phone 1 - Value,Address 1 - Type,Address 1 - Formatted,Address 1 - Street,Address 1 - City,"
    "Address 1 - PO Box,Address 1 - Region,Address 1 - Postal Code,Address 1 - Country,Address 1 - Extended Address,"
    "Organization 1 - Type,Organization 1 - Name,Organization 1 - Yomi Name,Organization 1 - Title,"
    "Organization 1 - Department,Organization 1 - Symbol,Organization 1 - Location,Organization 1 - Job Description"
)
OUTLOOK: Final = (
    "First Name,Middle Name,Last Name,Title,Suffix,Nickname,Given Yomi,Surname Yomi,E-mail Address,E-mail 2 Address,"
    "E-mail 3 Address,Home Phone,Home Phone 2,Business Phone,Business Phone 2,Mobile Phone,Car Phone,Other Phone,Primary Phone,"
    "Pager,Business Fax,Home Fax,Other Fax,Company Main Phone,Callback,Radio Phone,Telex,TTY/TDD Phone,IMAddress,Job Title,"
    "Department,Company,Office Location,Manager's Name,Assistant's Name,Assistant's Phone,Company Yomi,Business Street,"
    "Business City,Business State,Business Postal Code,Business Country/Region,Home Street,Home City,Home State,"
    "Home Postal Code,Home Country/Region,Other Street,Other City,Other State,Other Postal Code,Other Country/Region,"
    "Personal Web Page,Spouse,Schools,Hobby,Location,Web Page,Birthday,Anniversary,Notes"
)
OUTLOOK_WINDOWS: Final = (
    "Title,First Name,Middle Name,Last Name,Suffix,Company,Department,Job Title,Business Street,Business Street 2,"
    "Business Street 3,Business City,Business State,Business Postal Code,Business Country/Region,Home Street,Home Street 2,"
    "Home Street 3,Home City,Home State,Home Postal Code,Home Country/Region,Other Street,Other Street 2,Other Street 3,"
    "Other City,Other State,Other Postal Code,Other Country/Region,Assistant's Phone,Business Fax,Business Phone,"
    "Business Phone 2,Callback,Car Phone,Company Main Phone,Home Fax,Home Phone,Home Phone 2,ISDN,Mobile Phone,Other Fax,"
    "Other Phone,Pager,Primary Phone,Radio Phone,TTY/TDD Phone,Telex,Account,Anniversary,Assistant's Name,Billing Information,"
    "Birthday,Business Address PO Box,Categories,Children,Directory Server,E-mail Address,E-mail Type,E-mail Display Name,"
    "E-mail 2 Address,E-mail 2 Type,E-mail 2 Display Name,E-mail 3 Address,E-mail 3 Type,E-mail 3 Display Name,Gender,"
    "Government ID Number,Hobby,Home Address PO Box,Initials,Internet Free Busy,Keywords,Language,Location,Manager's Name,"
    "Mileage,Notes,Office Location,Organizational ID Number,Other Address PO Box,Priority,Private,Profession,Referred By,"
    "Sensitivity,Spouse,User 1,User 2,User 3,User 4,Web Page"
)

SUITECRM: Final = (
    "First Name,Last Name,Job Title,Email Address,Primary Address Street,Primary Address City,Primary Address Country,"
    "Office Phone,Mobile,Do Not Call,Email Opt Out,Invalid Email,Account Name,Lead Source,ID,Deleted,Date Modified,"
    "Alternate Address City"
)
SHOPIFY: Final = (
    "Customer ID,First Name,Last Name,Email,Accepts Email Marketing,Default Address Company,Default Address Address1,"
    "Default Address Address2,Default Address City,Default Address Province Code,Default Address Country Code,"
    "Default Address Zip,Default Address Phone,Phone,Accepts SMS Marketing,Total Spent,Total Orders,Note,Tax Exempt,Tags,"
    "Accepts WhatsApp Marketing,Birthday (customer.metafields.facts.birth_date)"
)
MAILCHIMP: Final = (
    "Email Address,First Name,Last Name,Address,Phone Number,MEMBER_RATING,OPTIN_TIME,OPTIN_IP,CONFIRM_TIME,CONFIRM_IP,LATITUDE,"
    "LONGITUDE,GMTOFF,DSTOFF,TIMEZONE,CC,REGION,UNSUB_TIME,UNSUB_CAMPAIGN_TITLE,UNSUB_CAMPAIGN_ID,UNSUB_REASON,"
    "UNSUB_REASON_OTHER,LAST_CHANGED,LEID,EUID,NOTES,TAGS"
)
KLAVIYO: Final = (
    "Email,Klaviyo ID,First Name,Last Name,Organization,Title,Phone Number,Address,Address 2,City,State / Region,Country,"
    "Zip Code,Latitude,Longitude,Source,IP Address,Email Marketing Consent,Email Marketing Consent Timestamp,Average Order Value,"
    "First Active,Profile Created On,Date Added,Last Open,Email Suppressions"
)
PIPEDRIVE: Final = (
    "Person - Name,Person - First name,Person - Last name,Person - Job title,Person - Organization,Person - Email - Work,"
    "Person - Email - Home,Person - Email - Other,Person - Phone - Work,Person - Phone - Mobile,Person - Labels,Person - Owner,"
    "Person - Marketing status,Person - Open deals,Person - Country of Postal address,Person - Person created,"
    "Organization - Name,Deal - Title"
)
ZOOMINFO: Final = (
    "ZoomInfo Contact ID,Last Name,First Name,Middle Name,Salutation,Suffix,Job Title,Job Title Hierarchy Level,Management Level,"
    "Job Start Date,Job Function,Department,Company Division Name,Direct Phone Number,Email Address,Email Domain,Mobile phone,"
    "Last Job Change Type,Contact Accuracy Score,LinkedIn Contact Profile URL,Notice Provided Date,Person Street,Person City,"
    "Person State,Person Zip Code,Country,ZoomInfo Company ID,Company Name,Company Description,Website,Founded Year,"
    "Company HQ Phone,Fax,Ticker,Est. Marketing Department Budget (in 000s USD),Employees,Primary Industry,"
    "Company Street Address,Company City,Company State,Company Zip Code,Company Country,Full Address"
)
LINKEDIN: Final = "First Name,Last Name,URL,Email Address,Company,Position,Connected On"
EVABOOT: Final = (
    "First Name,Last Name,Current Job,Linkedin URL Public,Email,Email Status,Phone,Profile Summary,Person Location,Company Name,"
    "Company Domain,Company Website URL,Company Linkedin URL Unique ID,Company Location,Company Industry,"
    "Company Employee Exact Count,Company Year Founded,Matches Filters,No Match Reasons"
)
PHANTOMBUSTER: Final = (
    "profileUrl,fullName,firstName,lastName,companyName,title,companyId,companyUrl,regularCompanyUrl,summary,titleDescription,"
    "industry,companyLocation,location,durationInRole,durationInCompany,pastExperienceCompanyName,pastExperienceDate,"
    "connectionDegree,profileImageUrl,sharedConnectionsCount,name,vmid,linkedInProfileUrl,isPremium,isOpenLink,query,timestamp,"
    "defaultProfileUrl,email"
)
META: Final = (
    "id,created_time,ad_id,ad_name,adset_id,adset_name,campaign_id,campaign_name,form_id,form_name,is_organic,platform,first_name,"
    "last_name,email,work_email,phone_number,job_title,company_name,zip_code,country,lead_status"
)

EXPORTS: Final = {
    "hubspot": ("HubSpot", HUBSPOT),
    "salesforce-report": ("Salesforce", SALESFORCE_REPORT),
    "salesforce-leads": ("Salesforce", SALESFORCE_LEADS),
    "salesforce-api": ("Salesforce", SALESFORCE_API),
    "apollo": ("Apollo", APOLLO),
    "google": ("Google Contacts", GOOGLE),
    "google-before": ("Google Contacts", GOOGLE_BEFORE),
    "outlook": ("Outlook", OUTLOOK),
    "outlook-windows": ("Outlook", OUTLOOK_WINDOWS),
    "suitecrm": ("SuiteCRM", SUITECRM),
    "shopify": ("Shopify", SHOPIFY),
    "mailchimp": ("Mailchimp", MAILCHIMP),
    "klaviyo": ("Klaviyo", KLAVIYO),
    "pipedrive": ("Pipedrive", PIPEDRIVE),
    "zoominfo": ("ZoomInfo", ZOOMINFO),
    "linkedin": ("LinkedIn", LINKEDIN),
    "evaboot": ("Evaboot (Sales Navigator)", EVABOOT),
    "phantombuster": ("PhantomBuster", PHANTOMBUSTER),
    "meta": ("Meta lead forms", META),
}

PERSON: Final = {
    "email": "ada.example@works.example",
    "first_name": "Ada",
    "last_name": "Example",
    "title": "Head of Looms",
    "company_name": "Works",
    "country": "United Kingdom",
}
"""Fields of a fictitious person, by field code. Most tools have columns for most of these fields."""


def write_export(header: str, codes: tuple[str | None, ...]) -> str:
    """Return a CSV export of `PERSON`."""
    columns = header.split(",")
    cells = [PERSON.get(code or "", "" if code else f"of {column}") for column, code in zip(columns, codes, strict=True)]
    file = io.StringIO()
    csv.writer(file).writerows([columns, cells])
    return file.getvalue()
